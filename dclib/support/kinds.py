"""What a file is, by its first bytes, so that an error can name it."""

import json
import zipfile
from pathlib import Path

NPZ, TORCH, ZIP, GZIP = "an .npz archive", "a Python pickle, as torch.save writes", "a zip archive", "a gzip archive"
NETWORK = "a trained network of dclib's"
SET, CHECKPOINT, OTHER = "a condensed set", "a checkpoint of dclib's", "a safetensors file of another program"
BEGINNINGS = {
    b"\x93NUMPY": "a NumPy array (.npy)",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture",
    b"%PDF": "a PDF",
    b"\x1f\x8b": GZIP,
    b"\x89HDF": "an HDF5 file",
}


def kind_of(path: Path | str) -> str:
    """Return what a file is, in words; empty if it cannot be told, as of a damaged one."""
    try:
        with open(path, "rb") as file:
            start = file.read(8)
        if start.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
            if any(name.endswith("/data.pkl") for name in names):
                return TORCH
            return NPZ if names and all(name.endswith(".npy") for name in names) else ZIP
    except (OSError, zipfile.BadZipFile):
        return ""
    if start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05" and start[2:3] > b"\0":  # else a safetensors header's length
        return TORCH
    return next((kind for beginning, kind in BEGINNINGS.items() if start.startswith(beginning)), "") or _safetensors(path)


def _safetensors(path: Path | str) -> str:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
        about = json.loads(metadata["dclib"]) if "dclib" in metadata else None
    except (SafetensorError, OSError, ValueError):
        return ""
    if about is None:
        return "" if "crc" in metadata else OTHER  # a damaged one of ours
    if not isinstance(about, dict):
        return ""
    return NETWORK if "trained_on" in about else CHECKPOINT if "k" in about else SET if "class_names" in about else ""
