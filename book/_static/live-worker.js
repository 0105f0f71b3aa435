// The paper's ConvNet and its training (stage T, as in dclib/core/train.py) on grey images of 28 × 28 pixels, in a Worker of the page `live`.
// Feature maps lie as [pixel][channel]. Images pass the network one by one, since instance norm looks at one image alone.
"use strict";

const SIDE = 28, CLASSES = 10, EPS = 1e-5, MOMENTUM = 0.9, DECAY = 5e-4, RATE = 0.01;

// --- the matrix product C (M × N) += A (M × K) · B (K × N), in WebAssembly's text without brackets

// Four rows by eight columns of C at a time, so M is a multiple of 4 and N of 8. `down` and `right` are A's strides from row to row and from
// column to column, `line` is the length of a row of B and of C, all in bytes.
const GIVEN = ["C", "A", "B", "M", "K", "line", "down", "right"], ADDRESSES = ["j", "k", "a", "b", "c"];
const VECTORS = ["left", "right4", "x", "l0", "r0", "l1", "r1", "l2", "r2", "l3", "r3"];
const rows = text => [0, 1, 2, 3].map(text).join(" ");
const move = (name, by) => `local.get ${name} ${by} i32.add local.set ${name}`;
const at = (name, base) => `local.get ${base} local.get j i32.add local.set ${name}`;
const PRODUCT = `
  loop
    i32.const 0 local.set j
    loop
      local.get A local.set a  local.get K local.set k  ${at("b", "B")}  ${at("c", "C")}
      ${rows(i => `local.get c v128.load 0 local.set l${i}  local.get c v128.load 16 local.set r${i}  ${move("c", "local.get line")}`)}
      loop
        local.get b v128.load 0 local.set left  local.get b v128.load 16 local.set right4  local.get a local.set c
        ${rows(i => `local.get c v128.load32_splat 0 local.set x  ${move("c", "local.get down")}
          local.get l${i} local.get x local.get left f32x4.mul f32x4.add local.set l${i}
          local.get r${i} local.get x local.get right4 f32x4.mul f32x4.add local.set r${i}`)}
        ${move("a", "local.get right")}  ${move("b", "local.get line")}  ${move("k", "i32.const -1")}
        local.get k br_if 0
      end
      ${at("c", "C")}
      ${rows(i => `local.get c local.get l${i} v128.store 0  local.get c local.get r${i} v128.store 16  ${move("c", "local.get line")}`)}
      ${move("j", "i32.const 32")}
      local.get j local.get line i32.lt_u br_if 0
    end
    ${rows(() => `${move("A", "local.get down")} ${move("C", "local.get line")}`)}
    ${move("M", "i32.const -4")}
    local.get M br_if 0
  end`;
const BYTES = {  // of each instruction, before its operand
  "loop": [0x03, 0x40], "end": [0x0b], "br_if": [0x0d], "local.get": [0x20], "local.set": [0x21], "i32.const": [0x41], "i32.lt_u": [0x49],
  "i32.add": [0x6a], "v128.load": [0xfd, 0, 2], "v128.load32_splat": [0xfd, 9, 2], "v128.store": [0xfd, 11, 2],
  "f32x4.add": [0xfd, 0xe4, 1], "f32x4.mul": [0xfd, 0xe6, 1],
};

function assemble() {  // the module that exports PRODUCT as `f` and imports its memory
  const names = [...GIVEN, ...ADDRESSES, ...VECTORS], text = PRODUCT.trim().split(/\s+/);
  const body = text.flatMap(word => BYTES[word] || (names.includes(word) ? names.indexOf(word) : word & 0x7f));
  const length = n => n < 128 ? [n] : [n & 0x7f | 0x80, n >> 7], sized = bytes => [...length(bytes.length), ...bytes];
  const section = (id, ...bytes) => [id, ...sized(bytes)];
  const code = [2, ADDRESSES.length, 0x7f, VECTORS.length, 0x7b, ...body, 0x0b];
  return new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, ...section(1, 1, 0x60, ...sized(GIVEN.map(() => 0x7f)), 0),
    ...section(2, 1, 1, 109, 1, 109, 2, 0, 1), ...section(3, 1, 0), ...section(7, 1, 1, 102, 0, 0), ...section(10, 1, ...sized(code))]);
}

function arithmetic(fast = true) {  // {product, floats}: where WebAssembly has no vectors, the same in JavaScript
  const module = fast && typeof WebAssembly === "object" && WebAssembly.validate(assemble()) && new WebAssembly.Module(assemble());
  if (!module) return {product, floats: n => new Float32Array(n), fast: false};
  const memory = new WebAssembly.Memory({initial: 512}), {f} = new WebAssembly.Instance(module, {m: {m: memory}}).exports;
  let used = 0;
  return {
    fast: true,
    floats: n => new Float32Array(memory.buffer, (used += 4 * Math.ceil(n / 4) * 4) - 4 * Math.ceil(n / 4) * 4, n),
    product: (C, A, B, M, K, N, down, right) => f(C.byteOffset, A.byteOffset, B.byteOffset, M, K, 4 * N, 4 * down, 4 * right),
  };
}

function product(C, A, B, M, K, N, down, right) {
  for (let i = 0; i < M; i++)
    for (let k = 0; k < K; k++) {
      const a = A[i * down + k * right], b = k * N, c = i * N;
      if (a) for (let j = 0; j < N; j++) C[c + j] += a * B[b + j];
    }
}

// --- random numbers

function generator(seed) {  // uniform in [0, 1): mulberry32
  let state = seed * 0x9e3779b9 | 0;
  return () => {
    state = state + 0x6d2b79f5 | 0;
    let t = Math.imul(state ^ state >>> 15, 1 | state);
    t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t;
    return ((t ^ t >>> 14) >>> 0) / 2 ** 32;
  };
}

// --- augmentation, as in dclib/core/augment.py

function pick(image, rows, columns, fill) {  // the pixels at rows × columns, and `fill` outside of the image
  const out = new Float32Array(image.length), inside = i => i >= 0 && i < SIDE;
  rows.forEach((y, i) => columns.forEach((x, j) => out[i * SIDE + j] = inside(y) && inside(x) ? image[y * SIDE + x] : fill));
  return out;
}

const side = f => Array.from({length: SIDE}, (_, i) => f(i));

function crop(image, mean, down, right) {  // padded by 4 pixels of `mean`, cut out at an offset of 0 … 8
  return pick(image, side(i => i + down - 4), side(i => i + right - 4), mean);
}

function scale(image, down, right) {  // resized to the nearest pixels; cropped or padded with zeros to its old size
  const sizes = [down, right].map(factor => Math.floor(factor * SIDE)), canvas = Math.max(SIDE, ...sizes);
  const origins = sizes.map(size => side(i => {
    const start = Math.floor((canvas - SIDE) / 2) - Math.floor((canvas - size) / 2);
    return Math.floor((i + start) * SIDE / size);
  }));
  return pick(image, ...origins, 0);
}

function coefficients(line) {  // of the cubic spline through the numbers, which are mirrored at both ends
  const z = Math.sqrt(3) - 2, n = line.length, c = line.map(x => 6 * x);
  c[0] = c.reduce((sum, x, k) => sum + z ** k * x, 0);
  for (let k = 1; k < n; k++) c[k] += z * c[k - 1];
  c[n - 1] = z / (z * z - 1) * (c[n - 1] + z * c[n - 2]);
  for (let k = n - 2; k >= 0; k--) c[k] = z * (c[k + 1] - c[k]);
  return c;
}

function rotate(image, mean, degrees) {  // about the centre, by cubic splines; `mean` outside of the turned image
  const lines = side(i => coefficients(Array.from(image.subarray(i * SIDE, (i + 1) * SIDE))));
  const columns = side(j => coefficients(lines.map(line => line[j])));  // [column][row]
  const angle = degrees * Math.PI / 180, cos = Math.cos(angle), sin = Math.sin(angle), last = SIDE - 1;
  const turned = Math.floor(SIDE * (Math.abs(cos) + Math.abs(sin)) + 0.5), start = Math.floor((turned - SIDE) / 2) - (turned - 1) / 2;
  const mirror = i => i < 0 ? -i : i > last ? 2 * last - i : i;
  const weights = t => [(1 - t) ** 3, 4 + t * t * (3 * t - 6), 1 + t * (3 + t * (3 - 3 * t)), t ** 3].map(w => w / 6);
  return image.map((_, p) => {
    const i = Math.floor(p / SIDE) + start, j = p % SIDE + start;
    const y = cos * i + sin * j + last / 2, x = cos * j - sin * i + last / 2, tolerance = 1e-6;
    if (Math.min(x, y) < -tolerance || Math.max(x, y) > last + tolerance) return mean;
    const row = Math.floor(y), column = Math.floor(x), along = weights(x - column);
    return weights(y - row).reduce((sum, v, a) => sum + v * along.reduce((inner, w, b) =>
      inner + w * columns[mirror(column - 1 + b)][mirror(row - 1 + a)], 0), 0);
  });
}

const augmenting = seed => generator(seed + 2 ** 16);  // another than the weights'

function augment(images, random) {  // one of the three for each image
  const whole = n => Math.floor(n * random()), mean = images.flatMap(x => [...x]).reduce((sum, x) => sum + x, 0) / images.length / SIDE ** 2;
  return images.map(image => [
    () => crop(image, mean, whole(8), whole(8)),
    () => scale(image, 0.8 + 0.4 * random(), 0.8 + 0.4 * random()),
    () => rotate(image, mean, whole(90) - 45),
  ][whole(3)]());
}

// --- the network

class Block {  // convolution 3 × 3, instance norm, ReLU, average pooling by 2; the norm would take away a bias of the convolution
  constructor({product, floats}, random, size, padding, from, to) {
    const out = size + 2 * padding - 2, columns = Math.ceil(9 * from / 4) * 4;
    Object.assign(this, {product, size, padding, from, to, out, columns, pixels: out * out});
    this.patches = floats(this.pixels * columns);
    this.normed = floats(this.pixels * to);
    this.active = floats(this.pixels * to);
    this.signs = new Int32Array(this.active.buffer, this.active.byteOffset, this.active.length);
    this.local = floats(this.pixels * to);
    this.pooled = floats(this.pixels / 4 * to);
    this.back = floats(this.pixels * columns);
    this.turned = floats(columns * to);
    [this.factor, this.start, ...this.sums] = [0, 1, 2, 3].map(() => new Float64Array(to));
    this.weight = parameter(floats, columns * to, i => i < 9 * from * to ? (2 * random() - 1) / Math.sqrt(9 * from) : 0);  // [3 · 3 · from][to]
    this.gain = parameter(floats, to, () => 1);
    this.shift = parameter(floats, to, () => 0);
    this.parameters = [this.weight, this.gain, this.shift];
  }

  each(move) {  // every stretch of patches with the stretch of the image that it comes from: (place, origin, length)
    const {size, padding, from, out, columns} = this;
    for (let y = 0; y < out; y++)
      for (let a = 0; a < 3; a++) {
        const row = y + a - padding;
        if (row < 0 || row >= size) continue;
        for (let x = 0; x < out; x++) {
          const first = Math.max(0, padding - x), last = Math.min(3, size + padding - x);
          if (first < last) move((y * out + x) * columns + (3 * a + first) * from, (row * size + x + first - padding) * from, (last - first) * from);
        }
      }
  }

  forward(image) {
    const {to, out, pixels, patches, normed, active, pooled, factor, start} = this, gain = this.gain.value, shift = this.shift.value;
    this.each((place, origin, length) => { for (let i = 0; i < length; i++) patches[place + i] = image[origin + i]; });
    normed.fill(0);
    this.product(normed, patches, this.weight.value, pixels, this.columns, to, this.columns, 1);
    const [sum, square] = this.sums.map(sums => sums.fill(0));
    for (let p = 0, i = 0; p < pixels; p++)
      for (let c = 0; c < to; c++) {
        const x = normed[i++];
        sum[c] += x;
        square[c] += x * x;
      }
    for (let c = 0; c < to; c++) {
      const mean = sum[c] / pixels;
      factor[c] = 1 / Math.sqrt(square[c] / pixels - mean * mean + EPS);
      start[c] = -mean * factor[c];
    }
    pooled.fill(0);
    for (let y = 0, i = 0; y < out; y++)
      for (let x = 0; x < out; x++)
        for (let c = 0, j = ((y >> 1) * (out >> 1) + (x >> 1)) * to; c < to; c++, i++, j++) {
          const u = normed[i] * factor[c] + start[c];
          normed[i] = u;
          const z = active[i] = u * gain[c] + shift[c];
          pooled[j] += 0.125 * (z + Math.abs(z));  // a quarter of ReLU, without a branch, which processors would guess wrong
        }
    return pooled;
  }

  backward(moved, image) {  // from the gradient of what is pooled; adds to that of `image` where it is given
    const {to, out, pixels, columns, patches, normed, signs, factor, back, local} = this, gain = this.gain.value;
    const [plain, weighted] = this.sums.map(sums => sums.fill(0));
    for (let y = 0, i = 0; y < out; y++)
      for (let x = 0; x < out; x++)
        for (let c = 0, j = ((y >> 1) * (out >> 1) + (x >> 1)) * to; c < to; c++, i++, j++) {
          const d = 0.25 * moved[j] * (1 + (signs[i] >> 31));  // the sign bit of what went into ReLU
          local[i] = d;
          plain[c] += d;
          weighted[c] += d * normed[i];
        }
    for (let c = 0; c < to; c++) {
      this.shift.gradient[c] += plain[c];
      this.gain.gradient[c] += weighted[c];
      plain[c] /= pixels;
      weighted[c] /= pixels;
    }
    for (let p = 0, i = 0; p < pixels; p++)
      for (let c = 0; c < to; c++, i++) local[i] = factor[c] * gain[c] * (local[i] - plain[c] - normed[i] * weighted[c]);
    this.product(this.weight.gradient, patches, local, columns, pixels, to, 1, columns);
    if (!image) return;
    for (let i = 0; i < columns; i++) for (let c = 0; c < to; c++) this.turned[c * columns + i] = this.weight.value[i * to + c];
    back.fill(0);
    this.product(back, local, this.turned, pixels, to, columns, to, 1);
    image.fill(0);
    this.each((place, origin, length) => { for (let i = 0; i < length; i++) image[origin + i] += back[place + i]; });
  }
}

function parameter(floats, length, start) {
  const [value, gradient, momentum] = [0, 1, 2].map(() => floats(length));
  for (let i = 0; i < length; i++) value[i] = start(i);
  return {value, gradient, momentum};
}

class Network {
  constructor(width, seed, fast = true) {
    const random = generator(seed), tools = arithmetic(fast), {floats} = tools, inputs = 16 * width;
    this.fast = tools.fast;
    this.blocks = [[28, 3, 1], [16, 1, width], [8, 1, width]].map(shape => new Block(tools, random, ...shape, width));
    this.moved = this.blocks.map(block => floats(block.pooled.length));
    this.weight = parameter(floats, CLASSES * inputs, () => (2 * random() - 1) / Math.sqrt(inputs));  // [class][pixel][channel]
    this.bias = parameter(floats, CLASSES, () => (2 * random() - 1) / Math.sqrt(inputs));
    this.parameters = [...this.blocks.flatMap(block => block.parameters), this.weight, this.bias];
  }

  probabilities(image) {
    const features = this.blocks.reduce((x, block) => block.forward(x), image), n = features.length, logits = [...this.bias.value];
    for (let k = 0; k < CLASSES; k++) for (let i = 0; i < n; i++) logits[k] += this.weight.value[k * n + i] * features[i];
    const top = Math.max(...logits), powers = logits.map(x => Math.exp(x - top)), sum = powers.reduce((a, b) => a + b);
    return powers.map(x => x / sum);
  }

  accuracy(images, labels) {  // in percent
    const right = images.filter((image, i) => {
      const found = this.probabilities(image);
      return found.indexOf(Math.max(...found)) === labels[i];
    });
    return 100 * right.length / images.length;
  }

  gradients(images, labels) {  // of the mean cross-entropy, which is returned
    for (const {gradient} of this.parameters) gradient.fill(0);
    const loss = images.reduce((sum, image, i) => {
      const found = this.probabilities(image), last = this.blocks.at(-1).pooled, moved = this.moved.at(-1), n = last.length;
      moved.fill(0);
      found.forEach((p, k) => {
        const d = (p - (k === labels[i])) / images.length;
        this.bias.gradient[k] += d;
        for (let f = 0; f < n; f++) {
          this.weight.gradient[k * n + f] += d * last[f];
          moved[f] += d * this.weight.value[k * n + f];
        }
      });
      for (let b = this.blocks.length - 1; b >= 0; b--) this.blocks[b].backward(this.moved[b], this.moved[b - 1]);
      return sum - Math.log(found[labels[i]]);
    }, 0);
    return loss / images.length;
  }

  step(images, labels, rate) {  // of SGD
    const loss = this.gradients(images, labels);
    for (const {value, gradient, momentum} of this.parameters)
      for (let i = 0; i < value.length; i++) {
        momentum[i] = MOMENTUM * momentum[i] + gradient[i] + DECAY * value[i];
        value[i] -= rate * momentum[i];
      }
    return loss;
  }

  epoch(number, last, images, labels, random) {  // one of 0 … last; `random` where images are augmented
    if (number === Math.floor(last / 2) + 2) for (const {momentum} of this.parameters) momentum.fill(0);
    const rate = number > Math.floor(last / 2) + 1 ? RATE / 10 : RATE;
    return this.step(random ? augment(images, random) : images, labels, rate);
  }
}

// --- the Worker: {images, labels, test, answers, width, epochs, seed, augmented} starts a training, {image} asks for its probabilities

if (typeof WorkerGlobalScope === "function") {
  let network = null;

  async function train({images, labels, test, answers, width, epochs, seed, augmented}) {
    const random = augmented ? augmenting(seed) : null, tests = Math.ceil(epochs / 15);
    network = new Network(width, seed);
    for (let epoch = 0, shown = 0; epoch <= epochs; epoch++) {
      const loss = network.epoch(epoch, epochs, images, labels, random);
      const accuracy = epoch % tests === 0 || epoch === epochs ? network.accuracy(test, answers) : null;
      if (accuracy === null && performance.now() - shown < 50) continue;
      postMessage({epoch, loss, accuracy, done: epoch === epochs, fast: network.fast});
      shown = performance.now();
      await new Promise(next => setTimeout(next));  // for questions in between
    }
  }
  addEventListener("message", ({data}) => data.images ? train(data) : postMessage({probabilities: [...network.probabilities(data.image)]}));
}
