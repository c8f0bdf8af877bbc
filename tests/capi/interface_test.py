"""The generator reads include/epl.h, and refuses what does not say enough: each case breaks a small header in one way."""
import pathlib
import re
import sys
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "cmake/interface"))
import abi  # noqa: E402
import header  # noqa: E402
import options  # noqa: E402

SMALL = """/* Top. */
#ifndef EPL_H
#define EPL_H
#include <stdint.h>
/* --- One ---- */
typedef struct epl_error epl_error;
typedef struct epl_box epl_box;
#define EPL_SIZE 4 /* how many */
typedef void (*epl_see_fn)(void* userdata, const char* EPL_TEXT(length) text, size_t length);
typedef void (*epl_destroy_fn)(void* userdata);
struct epl_item;
typedef epl_error* (*epl_fill_fn)(void* userdata, const struct epl_item* EPL_COUNT(count) from,
    struct epl_item* EPL_COUNT(count) EPL_OUT to, size_t count);
typedef struct epl_item {
  double weight;
  int32_t kind;
} epl_item;
typedef struct epl_box_options {
  uint64_t struct_size;
  int32_t kind; /* which */
  const char* name;
  uint64_t name_length;
  epl_see_fn see;
  void* userdata;
  epl_destroy_fn destroy;
} epl_box_options;
#define EPL_BOX_OPTIONS_INIT {sizeof(epl_box_options), 0, NULL, 0, NULL, NULL, NULL}
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_box_options_init(epl_box_options* EPL_OUT options);
typedef struct epl_call_options {
  uint64_t struct_size;
} epl_call_options;
#define EPL_CALL_OPTIONS_INIT {sizeof(epl_call_options)}
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_call_options_init(epl_call_options* EPL_OUT options);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_error_destroy(epl_error* EPL_NULLABLE error);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_box_destroy(epl_box* EPL_NULLABLE box);
/* Makes one. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_box_create(const epl_box_options* EPL_NULLABLE options, epl_box** EPL_OUT box);
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_box_fill(epl_box* box, const char* EPL_TEXT(name_length) name, size_t name_length,
    const double* EPL_COUNT(count) values, size_t count, const epl_call_options* EPL_NULLABLE call);
#endif
"""

# (what is replaced, by what, a part of the message)
BROKEN = [
    ("EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_box_destroy", "EPL_ANY_THREAD void epl_box_destroy", "EPL_SINCE"),
    ("EPL_ANY_THREAD void epl_box_destroy", "void epl_box_destroy", "EPL_ANY_THREAD or EPL_ONE_CALLER"),
    ("const char* EPL_TEXT(name_length) name", "const char* name", "a text is"),
    ("EPL_TEXT(length) text", "text", "a text is"),
    ("EPL_TEXT(name_length) name", "EPL_TEXT(other) name", "other is no number"),
    ("const double* EPL_COUNT(count) values", "const double* values", "EPL_COUNT(n)"),
    ("const double* EPL_COUNT(count) values", "const void* values", "EPL_BYTES(n)"),
    ("const double* EPL_COUNT(count) values, size_t count", "size_t count", "counts nothing"),
    ("size_t count, const epl_call_options* EPL_NULLABLE call", "size_t count", "epl_call_options"),
    ("EPL_BLOCKING EPL_CHECKED", "EPL_CHECKED", "epl_call_options"),
    ("EPL_BLOCKING EPL_CHECKED", "EPL_BLOCKING", "EPL_CHECKED"),
    ("epl_box** EPL_OUT box", "epl_box** box", "handles are"),
    ("epl_box_create(const", "epl_box_take(const", "EPL_OWNED"),
    ("const epl_box_options* EPL_NULLABLE options", "const epl_box_options* options", "EPL_NULLABLE"),
    ("epl_box* EPL_NULLABLE box", "epl_box* box", "_destroy"),
    ("  uint64_t name_length;\n", "", "its length beside it"),
    ("  void* userdata;\n", "", "userdata"),
    ("  int32_t kind;", "  int kind;", "cannot be a field"),
    ("  int32_t kind;", "  bool kind : 1;", "nothing that a declaration"),
    ("0, NULL, 0, NULL, NULL, NULL}", "0, NULL, 0, NULL, NULL}", "zeros"),
    ("#define EPL_SIZE 4", "#define EPL_SIZE sizeof(int)", "neither an integer"),
    ("#define EPL_SIZE 4", "#if EPL_MORE", "not understood"),
    ("/* Makes one. */", "int epl_loose;", "begins no declaration"),
    ("/* Makes one. */", "EPL_API int epl_make(...);", "declaration"),
    ("epl_error* EPL_NULLABLE error);", "epl_error* EPL_NULLABLE error, ...);", "declaration"),
    ("const struct epl_item* EPL_COUNT(count) from,", "const struct epl_item* from,", "goes in arrays"),
    ("  double weight;", "  epl_destroy_fn fn; void* userdata;", "no struct_size"),
    ("EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_box_destroy(epl_box* EPL_NULLABLE box);\n", "", "epl_box_destroy"),
]


# What has no counterpart in the layer of a language, and why. (C++ and Python are generated from the header.)
OF_HOST = "what a call of the layer gives has memory of the host"
DTYPES = "types of elements are those of the language, or have a name"
ABI = "a program is built for one ABI, which the loader of the library checks"
EVENTS = "a goroutine and a channel are what an event is elsewhere"
LAYERS = {
    "go": ("bindings/go/*.go", lambda name: "raw." + "".join(part.capitalize() for part in name[4:].split("_")), {
        ABI: "abi_version", OF_HOST: "tensor_device", DTYPES: "dtype_bits",
        "a context knows by itself whether it has ended": "cancel_triggered",
        "a slice that make() has filled with zeros is copied": "tensor_create",
        "a view is for reading, whatever lies below": "tensor_is_read_only",
        "numbers are written as text, which has all their digits": "trainer_set_number",
        "an io.ReaderAt of the bytes is read": "session_load_bytes",
        EVENTS: "session_step_async session_evaluate_async session_predict_async event_destroy event_ready event_wait"
                " event_fd event_on_ready"}),
    "rust": ("bindings/rust/epl/src/*.rs", str, {
        ABI: "abi_version", OF_HOST: "tensor_device", DTYPES: "dtype_bits",
        "numbers are written as text, which has all their digits": "trainer_set_number",
        "a waker is told by on_ready": "event_fd"}),
    "java": ("bindings/java/src/main/java/ai/epl/*.java", str, {
        ABI: "abi_version", OF_HOST: "tensor_device", DTYPES: "dtype_bits dtype_name",
        "the raw layer makes exceptions of errors and strings of texts":
            "error_code error_message error_where error_rank error_retryable error_destroy error_create error_code_name"
            " text_data text_destroy",
        "a tensor is made first and filled where it lies": "tensor_create_copy",
        "Source.of makes a source of bytes": "session_load_bytes",
        "a future polls itself": "event_ready",
        "a Selector waits for Java's own channels alone": "event_fd"}),
}
STRUCTS = {struct.name for struct in header.read(TOP / "include/epl.h").structs}  # raw layers have their defaults


class Header(unittest.TestCase):
    def test_the_small_header_is_understood(self):
        interface = header.Reader(SMALL).read()
        self.assertEqual([(c.name, c.value, c.comment) for c in interface.constants], [("EPL_SIZE", 4, "how many")])
        self.assertEqual(interface.handles, ["epl_error", "epl_box"])
        options = interface.struct("epl_box_options")
        self.assertEqual([(f.role, f.offset) for f in options.fields],
                         [("scalar", 0), ("scalar", 8), ("text", 16), ("length", 24), ("callback", 32),
                          ("userdata", 40), ("destroy", 48)])
        self.assertEqual(options.size, 56)
        self.assertEqual((interface.struct("epl_item").size, interface.struct("epl_item").sized), (16, False))
        self.assertEqual([a.role for a in interface.callback("epl_fill_fn").arguments],
                         ["userdata", "structs", "structs", "length"])
        self.assertEqual(options.fields[1].comment, "which")
        fill = interface.functions[-1]
        self.assertEqual((fill.object, fill.method, fill.thread, fill.blocking), ("epl_box", "fill", "one", True))
        self.assertEqual([a.role for a in fill.arguments], ["handle", "text", "length", "array", "length", "struct"])
        create = interface.functions[-2]
        self.assertTrue(create.makes)
        self.assertEqual(create.comment, "Makes one.")

    def test_what_does_not_say_enough_is_refused(self):
        for before, after, why in BROKEN:
            with self.subTest(before=before, after=after):
                self.assertIn(before, SMALL)
                with self.assertRaises(header.HeaderError) as raised:
                    header.Reader(SMALL.replace(before, after)).read()
                self.assertIn(why, str(raised.exception))
                self.assertRegex(str(raised.exception), r"^include/epl\.h:\d+: ")

    def test_an_error_names_its_line(self):
        text = SMALL.replace("const double* EPL_COUNT(count) values", "const double* values")
        line = text[:text.index("const double* values")].count("\n") + 1
        with self.assertRaisesRegex(header.HeaderError, f"^include/epl.h:{line}: values of epl_box_fill"):
            header.Reader(text).read()

    def test_the_listing_keeps_who_owns_what_and_forgets_comments(self):
        listing = list(abi.listing(header.Reader(SMALL).read()))
        self.assertIn("constant EPL_SIZE = 4", listing)
        self.assertIn("0.1 epl_error* epl_box_create("
                      "const epl_box_options* EPL_NULLABLE options, epl_box** EPL_OUT box)", listing)

    def test_the_header_itself_is_understood(self):
        interface = header.read(TOP / "include/epl.h")
        self.assertGreater(len(interface.functions), 100)
        for f in interface.functions:
            self.assertTrue(f.since)

    def test_settings_have_all_that_a_trainers_document_has(self):
        source = (TOP / "core/capi/trainer_json.cc").read_text()
        reader = source[source.index("Status read_trainer("):source.index("Json groups_json(")]
        read = set(re.findall(r'key == "(\w+)"', reader)) - {"schema", "values"}
        self.assertEqual(read, {option.name for option in options.MEMBERS})

    def test_no_option_of_a_row_is_called_like_a_key_of_the_trainer(self):
        for kind, rows in options.kinds():
            for row in rows:
                self.assertFalse({f"{kind}.{option.name}" for option in row.options} & set(options.own(kind)), row.name)

    def test_each_language_has_every_function(self):
        names = {f.name for f in header.read(TOP / "include/epl.h").functions}
        for language, (files, spelled, without) in LAYERS.items():
            text = "".join(path.read_text() for path in sorted(TOP.glob(files)) if not path.name.endswith("_test.go"))
            missing = {name for name in names if not re.search(rf"\b{spelled(name)}\b", text)}
            missing = {name for name in missing if not (name.endswith("_init") and name[:-5] in STRUCTS)}
            self.assertEqual(missing, {f"epl_{name}" for name in " ".join(without.values()).split()}, language)


if __name__ == "__main__":
    unittest.main()
