"""Stage T: training networks on ten images with MNIST's augmentation, against the literal loop; seconds for one network.

  plain      dclib/core/reference.py: eager float32, images augmented one by one, the C library's allocator as it comes
  tuned      the same with dclib's allocator settings
  eager      dclib, uncompiled, images augmented together
  compiled   dclib as `engine="auto"` runs it on a CPU
  captured   dclib as `engine="auto"` runs it on a GPU: twenty networks as one, steps replayed (with --device cuda)

A training of 1001 epochs is shortened to `epochs`, and on a CPU two networks stand for twenty; the test is not timed.

Usage: python benchmarks/bench_train.py [--device cuda] [--rounds 2] [--network ConvNet]
"""

import time

import contest

CASE = dict(classes=10, channels=1, size=28, epochs=60, networks=2)


def work(contestant: str, case: dict) -> None:
    """Time the trainings of one contestant."""
    import torch

    from dclib.core import engine as engines
    from dclib.core import networks, reference
    from dclib.core.stacked import train_together
    from dclib.core.train import schedule, train
    from dclib.spec import Network, Training

    if contestant != "plain":
        engines.tune_allocator()
    device, count = torch.device(case["device"]), case["networks"]
    loaded = contest.dataset(case["classes"], case["channels"], case["size"], 1).to(device)
    hyper = Training(Network.parse(case["network"]), epochs=case["epochs"], augment="crop+scale+rotate").resolve()
    shape = dict(channels=case["channels"], classes=case["classes"], size=(case["size"],) * 2)
    x, y = loaded.normalise(loaded.x_train), loaded.y_train

    def drawn(seed: int):
        return networks.build(hyper.network, **shape, seed=seed).to(device)

    with engines.arithmetic("float32", device):
        if contestant == "captured":
            shared = x.expand(count, *x.shape), y.expand(count, *y.shape)
            many = lambda: train_together(  # noqa: E731
                [drawn(s) for s in range(count)], *shared, hyper, schedule(hyper), seeds=list(range(count)), capture=True
            )
            contest.finish({"seconds": [s / count for s in contest.timed(many, 1, case["device"])]}, case["device"])
            return
        network = drawn(0)
        forward = engines.prepare(network, contestant if contestant == "compiled" else "eager")
        seconds = []
        for seed in range(count + 1):
            network.load_state_dict(drawn(seed).state_dict())
            start = time.perf_counter()
            if contestant in ("plain", "tuned"):
                reference.train(network, x, y, hyper, seed)
            else:
                train(network, x, y, hyper, seed=seed, forward=forward)
            seconds.append(time.perf_counter() - start)
    contest.finish({"seconds": seconds[1:]}, case["device"])


def main() -> None:
    """Run the contest, record it and print its table."""
    options = contest.parser(__doc__, rounds=2).parse_args()
    if options.contestant:
        work(options.contestant, options.case)
        return
    gpu = options.device == "cuda"
    case = {**CASE, "network": options.network, "device": options.device, "networks": 20 if gpu else CASE["networks"]}
    names = ["eager", "captured"] if gpu else ["plain", "tuned", "eager", "compiled"]
    title = f"{options.network}, ten images, MNIST's augmentation, {CASE['epochs'] + 1} of 1001 epochs"
    contest.record("train", title, case, contest.contest(__file__, case, names, options.rounds))


if __name__ == "__main__":
    main()
