#!/usr/bin/env python3
"""Writes corpus/checkpoint: checkpoints as checkpoint_fuzz.cc takes them, whole ones and ones that must be refused.

Needs flatc on the path. Run it in any folder; the files are the same each time.
"""

import json
import pathlib
import struct
import subprocess
import tempfile

HERE = pathlib.Path(__file__).parent
SCHEMA = HERE.parent.parent / "core/runtime/checkpoint.fbs"
CORPUS = HERE / "corpus/checkpoint"
NO_HASHES, SIGN_MANIFEST, SIGN_BOTH = 0, 1, 3


def manifest(entries, **changes):
    """The FlatBuffer of a manifest; `entries` are (name, kind), or (name, kind, dims, pieces)."""
    fields = dict(format=1, numerics=1, generation=7, step=3, seed=2**64 - 1, units=8, data_position=9,
                  tensors_file="tensors-7.safetensors", tensors_bytes=1, tensors_hash=1,
                  entries=[dict(zip(("name", "kind", "dims", "pieces"), entry)) for entry in entries])
    fields.update(changes)
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "manifest.json"
        text.write_text(json.dumps(fields))
        subprocess.run(["flatc", "--binary", "-o", folder, SCHEMA, text], check=True)
        return (pathlib.Path(folder) / "manifest.bin").read_bytes()


def tensors(shapes, data=None):
    """A safetensors file of f32 tensors; `shapes` are name: shape."""
    header, at = {"__metadata__": {"format": "epl checkpoint"}}, 0
    for name, shape in shapes.items():
        count = 1
        for size in shape:
            count *= size
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * count]}
        at += 4 * count
    text = json.dumps(header, separators=(",", ":")).encode()
    body = struct.pack(f"<{at // 4}f", *range(at // 4)) if data is None else data
    return struct.pack("<Q", len(text)) + text + body


def write(name, head, rest, flags=SIGN_BOTH):
    (CORPUS / name).write_bytes(struct.pack("<BI", flags, len(head)) + head + rest)


def main():
    CORPUS.mkdir(parents=True, exist_ok=True)
    shapes = {"w": [2, 2], "w.mean": [2, 2], "n": [1], "e": [0]}
    listed = [("w", 0), ("w.mean", 3), ("n", 2), ("e", 1)]
    whole = manifest(listed)
    values = tensors(shapes)
    write("whole", whole, values)
    write("nothing_in_it", manifest([]), tensors({}))
    write("wrong_hash", whole, values, NO_HASHES)
    write("tensors_of_another", whole, values, SIGN_MANIFEST)
    write("tensors_cut", whole, values[:-6])
    write("newer_format", manifest(listed, format=3), values)
    write("before_the_start", manifest(listed, step=-1), values)
    write("data_before_the_start", manifest(listed, data_position=-2), values)
    write("path_up", manifest(listed, tensors_file="../a/tensors-7.safetensors"), values)
    write("path_absolute", manifest(listed, tensors_file="/etc/passwd"), values)
    write("generation_huge", manifest(listed, tensors_file="tensors-18446744073709551616.safetensors"), values)
    write("file_missing", manifest(listed, tensors_file="tensors-8.safetensors"), values)
    write("one_missing", whole, tensors({"w": [2, 2], "w.mean": [2, 2], "n": [1], "f": [0]}))
    write("one_more", manifest(listed[:3]), values)
    write("twice", manifest(listed[:3] + listed[:1]), values)
    write("kind_unknown", manifest(listed[:3] + [("e", 200)]), values)
    write("name_with_zero", manifest([("a\0b", 0)]), tensors({"a\0b": [1]}))
    write("name_is_metadata", manifest([("__metadata__", 0)]), tensors({}))
    write("sizes_huge", manifest([("w", 0)]), tensors({"w": [2**62, 4]}, b"\0" * 16))
    # A tensor of two pieces, and of pieces that do not make one.
    halves = tensors({"w@0": [1, 2], "w@1": [1, 2]})

    def two(first, second, dims=(2, 2), **changes):
        pieces = [dict(key="w@0", offset=list(first)), dict(key="w@1", offset=list(second), rank=1)]
        pieces[1].update(changes)
        return manifest([("w", 0, list(dims), pieces)], format=2)

    write("pieces", two((0, 0), (1, 0)), halves)
    write("pieces_in_other_order", two((1, 0), (0, 0)), halves)
    write("pieces_overlap", two((0, 0), (0, 0)), halves)
    write("piece_outside", two((0, 0), (2, 0)), halves)
    write("piece_before", two((0, 0), (-2**63, 0)), halves)
    write("piece_missing", two((0, 0), (1, 0), (3, 2)), halves)
    write("piece_of_other_rank", two((0, 0), (1,)), halves)
    write("piece_twice", two((0, 0), (1, 0), key="w@0"), halves)
    write("piece_in_no_file", two((0, 0), (1, 0), file=7), halves)
    write("dims_huge", two((0, 0), (1, 0), (2**62, 2**62)), halves)
    write("no_pieces", manifest([("w", 0, [0], [])], format=2), tensors({}))
    write("file_of_other_process_missing",
          manifest(listed, format=2, files=[dict(name="tensors-7.1.safetensors", bytes=1, hash=1)]), values)
    # Offsets and lengths inside the FlatBuffer, made to point outside of it.
    write("root_outside", struct.pack("<I", 2**31) + whole[4:], values)
    write("root_at_itself", struct.pack("<I", 0) + whole[4:], values)
    write("other_identifier", whole[:4] + b"EPLX" + whole[8:], values)
    at = whole.index(b"w.mean") - 4
    write("string_too_long", whole[:at] + struct.pack("<I", 2**32 - 1) + whole[at + 4:], values)
    write("manifest_cut", whole[:len(whole) // 2], values)


if __name__ == "__main__":
    main()
