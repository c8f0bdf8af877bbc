"""What may be set, of core/capi/options.json: the keys of a trainer and of a job, and the options of losses, optimizers
and schedules. The typed settings of the bindings are made of it."""
import dataclasses
import functools
import json
import pathlib

LISTING = pathlib.Path(__file__).resolve().parents[2] / "core/capi/options.json"
ROWS = {"losses": "loss", "optimizers": "optimizer", "schedules": "schedule"}
# Words that are not written with one capital.
SPELLED = {"sgd": "SGD", "mse": "MSE", "bce": "BCE", "adamw": "AdamW", "rmsprop": "RMSprop"}


@dataclasses.dataclass(frozen=True)
class Option:
    name: str
    type: str  # boolean, integer, number, text, integers, numbers, texts, sizes (by name), json or objects (a list)
    default: object  # None: it must be given, or is any JSON; {} and []: nothing is given
    doc: str

    @property
    def required(self):
        return self.default is None and self.type not in ("json", "objects")

    @property
    def field(self):
        return self.name.replace(".", "_")

    @property
    def zero(self):
        """Whether the default is what a language has in an empty field."""
        return not self.default and not self.required

    def explained(self):
        shown = "" if self.default in (None, "", [], {}) else f" (default: {json.dumps(self.default)})"
        return (self.doc or "as its row declares").rstrip(".") + shown


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    doc: str
    options: tuple

    @property
    def camel(self):
        return "".join(SPELLED.get(word, word.capitalize()) for word in self.name.split("_"))

    def sentence(self):
        text = self.doc.replace("\n", " ").strip()
        return text + ("" if text.endswith(".") else ".")


def camel(name):
    """learning_rate as LearningRate."""
    return "".join(word.capitalize() for word in name.replace(".", "_").split("_"))


def lower_camel(name):
    whole = camel(name)
    return whole[0].lower() + whole[1:]


@functools.cache
def tables():
    """By the names of the listing: lists of rows; trainer and job have one."""
    read = json.loads(LISTING.read_text())
    return {table: [Row(row["name"], row["doc"],
                        tuple(Option(name, row["option_types"][name], default, documented(row, name))
                              for name, default in row["options"].items())) for row in rows]
            for table, rows in read.items()}


def documented(row, name):
    """What an option means, and the range of its numbers."""
    return "; ".join(filter(None, (row["option_docs"].get(name, ""), row["option_ranges"].get(name, ""))))


def job():
    return tables()["job"][0]


def trainer():
    """Without the keys that name a row."""
    row = tables()["trainer"][0]
    return Row(row.name, row.doc, tuple(o for o in row.options if o.name not in ROWS.values()))


# What the JSON of a trainer has beside its keys (core/capi/trainer_json.cc).
MEMBERS = (
    Option("symbols", "sizes", {}, "sizes of symbolic dimensions of the model"),
    Option("train_only", "texts", [], "patterns of parameters that are trained; all others are frozen"),
    Option("groups", "objects", None, "parameters with options of their own: each has match, a list of patterns, and options"
                                      " of the optimizer, or frozen, or constants"),
    Option("adapters", "objects", None, "low-rank adapters: each has match, a pattern, and rank, alpha, dropout"),
    Option("inputs", "json", None, "by name dtype, dims and batch_dim of inputs"),
    Option("shapes", "objects", None, "further shapes that batches may have: each has symbols or inputs"),
)


def trainer_settings():
    """All that a trainer may be given beside its rows."""
    row = trainer()
    return Row(row.name, row.doc, row.options + MEMBERS)


def own(kind):
    """The keys of a trainer that look like options of a row of this kind: a row that is set leaves them alone."""
    return [o.name for o in trainer().options if o.name.startswith(kind + ".")]


def kinds():
    """(kind of rows, as in "optimizer", the rows), for each kind."""
    return [(kind, tables()[table]) for table, kind in ROWS.items()]
