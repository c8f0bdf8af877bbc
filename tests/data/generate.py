"""Writes tests/data/files: what other people's libraries make of known numbers. NumPy, pandas, pyarrow and Pillow are
needed.

The tests know the numbers by their formulas (tests/data/arrays_test.cc, parquet_test.cc, images_test.cc); what Pillow
makes of an image stands beside it, because no formula says it."""
import decimal
import pathlib

import numpy
import pandas
import pyarrow
import pyarrow.parquet
from PIL import Image

files = pathlib.Path(__file__).parent / "files"
files.mkdir(exist_ok=True)


def arrays():
    grid = numpy.arange(24).reshape(4, 3, 2)
    numpy.save(files / "f32.npy", (grid / 4).astype("<f4"))
    numpy.save(files / "fortran_f64.npy", numpy.asfortranarray(grid / 4))
    numpy.save(files / "big_endian_i16.npy", (grid - 12).astype(">i2"))
    numpy.save(files / "bool.npy", grid % 3 == 0)
    numpy.save(files / "table.npy", numpy.arange(12, dtype="<f8").reshape(4, 3))
    numpy.save(files / "labels.npy", numpy.array([2, 0, 1, 2], dtype="u1"))
    with open(files / "version_2.npy", "wb") as out:
        numpy.lib.format.write_array(out, numpy.arange(4, dtype="<i8"), version=(2, 0))
    numpy.save(files / "texts.npy", numpy.array(["a", "bc"]))
    numpy.save(files / "objects.npy", numpy.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    numpy.save(files / "records.npy", numpy.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")]))
    named = {"images": (grid * 10).astype("u1"), "target": numpy.array([3, 1, 0, 2]),
             "half": (grid[:, 0, 0] / 8).astype("<f2")}
    numpy.savez(files / "stored.npz", **named)
    numpy.savez_compressed(files / "compressed.npz", **named)


def table(rows=300):
    i = numpy.arange(rows)
    return pyarrow.table({
        "a": pyarrow.array(i * 7 % 100 - 50, pyarrow.int32()),
        "b": pyarrow.array(i.astype("int64") ** 3),
        "c": pyarrow.array(i / 4, pyarrow.float32()),
        "d": pyarrow.array([None if k % 10 == 3 else k * 0.5 for k in range(rows)], pyarrow.float64()),
        "e": pyarrow.array(i % 3 == 0),
        "f": pyarrow.array([["low", "middle", "high"][k % 3] for k in range(rows)]),
        "g": pyarrow.array(i % 256, pyarrow.uint8()),
        "h": pyarrow.array(4294967295 - i, pyarrow.uint32()),
        "k": pyarrow.array([decimal.Decimal(k) / 100 for k in range(rows)], pyarrow.decimal128(7, 2)),
    })


def parquet():
    write = lambda name, **options: pyarrow.parquet.write_table(table(), files / f"{name}.parquet",
                                                                store_decimal_as_integer=True, **options)
    write("snappy")   # as pandas' to_parquet does
    write("zstd_second_pages", compression="zstd", data_page_version="2.0", row_group_size=110)
    write("gzip_plain", compression="gzip", use_dictionary=False, data_page_size=256)
    write("deltas", compression="none", use_dictionary=False, data_page_version="2.0", write_statistics=False,
          column_encoding={"a": "DELTA_BINARY_PACKED", "b": "DELTA_BINARY_PACKED", "c": "BYTE_STREAM_SPLIT",
                           "d": "BYTE_STREAM_SPLIT", "e": "RLE", "f": "DELTA_BYTE_ARRAY",
                           "g": "DELTA_BINARY_PACKED", "h": "DELTA_BINARY_PACKED"})
    pyarrow.parquet.write_table(pyarrow.table({"x": [[1.0, 2.0], [3.0]], "s": [{"p": 1}, {"p": 2}], "y": [0, 1],
                                               "a": [0.5, 1.5]}), files / "nested.parquet", compression="none")
    frame = pandas.DataFrame({"width": [1.5, 2.5, 3.5], "kind": ["b", "a", "b"]}, index=[5, 6, 7])
    frame.to_csv(files / "pandas_index.csv")
    frame.to_csv(files / "pandas.tsv", index=False, sep="\t")


def picture(width, height):
    y, x = numpy.mgrid[0:height, 0:width]
    return numpy.stack([x * 255 // (width - 1), y * 255 // (height - 1), (x * 7 + y * 13) % 256], -1).astype("u1")


def images():
    folder = files / "images"
    (folder / "cat").mkdir(parents=True, exist_ok=True)
    (folder / "dog").mkdir(exist_ok=True)
    rgb = Image.fromarray(picture(17, 12))
    rgb.save(folder / "cat" / "a.jpg", quality=90)
    rgb.convert("L").save(folder / "cat" / "b.png")
    rgb.quantize(16).save(folder / "cat" / "c.PNG")
    alpha = rgb.convert("RGBA")
    alpha.putalpha(128)
    alpha.save(folder / "dog" / "d.png")
    Image.fromarray(picture(40, 33)).convert("L").save(folder / "dog" / "e.jpeg", quality=80, progressive=True)
    small, grey = [], []
    for path in sorted(folder.glob("*/*")):
        image = Image.open(path)
        small.append(numpy.asarray(image.convert("RGB").resize((7, 9), Image.BILINEAR)))
        grey.append(numpy.asarray(image.convert("RGB").convert("L").resize((24, 20), Image.BILINEAR)))
    numpy.savez(files / "images.npz", small=numpy.stack(small), grey=numpy.stack(grey))


arrays()
parquet()
images()
