"""Reads include/epl.h into an Interface. Strict: what it does not understand, and what an annotation should say and does
not, is an error that names the line. CONTRIBUTING.md ("A function of the C API") has the rules in words."""
import re

from model import Argument, Callback, Constant, Field, Function, Interface, Struct, Type

# Macros without a value that a program could use: annotations and the header's own.
KNOWN_MACROS = {"EPL_H", "EPL_API", "EPL_STR", "EPL_CHECKED", "EPL_ANY_THREAD", "EPL_ONE_CALLER", "EPL_QUICK",
                "EPL_SIGNAL_SAFE", "EPL_BLOCKING", "EPL_TEXT", "EPL_BYTES", "EPL_COUNT", "EPL_KEPT", "EPL_OUT",
                "EPL_OWNED", "EPL_NULLABLE", "EPL_SINCE"}
FLAGS = {"EPL_OUT": "out", "EPL_OWNED": "owned", "EPL_NULLABLE": "nullable", "EPL_KEPT": "kept"}
LENGTHS = {"EPL_TEXT": "text", "EPL_BYTES": "bytes", "EPL_COUNT": "array"}
BANNER = re.compile(r"--- (.*?)[ -]*(?:\n(.*))?\Z", re.DOTALL)
TOKEN = re.compile(r"""(?P<comment>/\*.*?\*/)|(?P<directive>\#(?:[^\n/\\]|\\\n|/(?!\*)|\\.)*)|(?P<string>"[^"\n]*")
                       |(?P<word>[A-Za-z_]\w*)|(?P<number>\d+)|(?P<mark>[(){}\[\];,*])|(?P<space>\s+)|(?P<other>.)""",
                   re.DOTALL | re.VERBOSE)


class HeaderError(Exception):
    def __init__(self, line, message):
        super().__init__(f"include/epl.h:{line}: {message}")


class Token:
    def __init__(self, kind, text, line, starts_line):
        self.kind, self.text, self.line, self.starts_line = kind, text, line, starts_line
        self.end_line = line + text.count("\n")


def tokens_of(text):
    line, starts = 1, True
    for match in TOKEN.finditer(text):
        kind, part = match.lastgroup, match.group()
        if kind == "other":
            raise HeaderError(line, f"'{part}' is nothing that a declaration here has")
        if kind != "space":
            yield Token(kind, part, line, starts)
            starts = False
        if "\n" in part:
            starts = starts or kind == "space"
        line += part.count("\n")


def words_of_comment(text):
    """A comment without its marks; lines set in columns keep their indentation."""
    lines = text[2:-2].split("\n")
    plain = [re.sub(r"^ *\*? ?", "", line) if i == 0 else re.sub(r"^ *\* ?", "", line) for i, line in enumerate(lines)]
    if len(lines) > 1 and not any(re.match(r" *\*", line) for line in lines[1:]):
        plain = [line.strip() for line in lines]
    return "\n".join(line.rstrip() for line in plain).strip()


class Reader:
    def __init__(self, text):
        self.tokens, self.at = list(tokens_of(text)), 0
        self.constants, self.handles, self.structs, self.callbacks, self.functions = [], [], [], [], []
        self.inits, self.sections, self.section = {}, {}, ""
        self.comment, self.comment_end = "", 0
        self.top = ""

    # --- Tokens

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self, text=None, kind=None):
        token = self.peek()
        if token is None:
            raise HeaderError(self.tokens[-1].line, f"the file ends where '{text or kind}' should come")
        if (text and token.text != text) or (kind and token.kind != kind):
            raise HeaderError(token.line, f"'{token.text}' stands where '{text or kind}' should")
        self.at += 1
        return token

    def accept(self, text):
        token = self.peek()
        if token is not None and token.text == text:
            self.at += 1
            return True
        return False

    def trailing(self, line):
        """The comment behind something that ended on this line."""
        token = self.peek()
        if token is not None and token.kind == "comment" and token.line == line and not token.starts_line:
            self.at += 1
            return words_of_comment(token.text)
        return ""

    # --- The file

    def read(self):
        while self.peek() is not None:
            token = self.peek()
            if token.kind == "comment":
                self.at += 1
                self.see_comment(token)
            elif token.kind == "directive":
                self.directive()
            elif token.text == "struct":  # it is declared before what has a pointer to it
                self.at += 1
                self.take(kind="word")
                self.take(";")
            elif token.text == "typedef":
                self.typedef()
            elif token.text == "EPL_API":
                self.function()
            else:
                raise HeaderError(token.line, f"'{token.text}' begins no declaration that this reader knows")
        return self.finish()

    def see_comment(self, token):
        words = words_of_comment(token.text)
        banner = BANNER.match(words)
        if banner:
            self.section, self.comment = banner.group(1), ""
            self.sections[self.section] = (banner.group(2) or "").strip()
        elif not self.top:
            self.top = words
        else:
            self.comment, self.comment_end = words, token.end_line

    def doc(self, line):
        """The comment right above this line."""
        words = self.comment if self.comment and self.comment_end + 1 >= line else ""
        self.comment = ""
        return words

    def directive(self):
        token = self.take(kind="directive")
        text = " ".join(token.text.replace("\\\n", " ").split())
        if re.match(r"#(include <std(def|int)\.h>|ifndef EPL_H$|endif)", text):
            return
        if re.match(r"#if(def __cplusplus| defined\(_WIN32\))$", text):
            # Nothing of the interface depends on a platform or a language.
            while not self.peek().text.startswith("#endif"):
                inner = self.take()
                named = re.match(r"#define (\w+)", inner.text)
                if named and named.group(1) not in KNOWN_MACROS:
                    raise HeaderError(inner.line, f"{named.group(1)} depends on the platform")
            return
        defined = re.match(r"#define (\w+)(\([a-z, ]*\))? ?(.*)$", text)
        if not defined:
            raise HeaderError(token.line, f"'{text}' is not understood")
        name, _, value = defined.groups()
        if name in KNOWN_MACROS:
            self.doc(token.line)
        elif name.endswith("_INIT"):
            self.inits[name] = (token.line, value)
        elif re.fullmatch(r"-?\d+|\(-\d+\)", value):
            comment = self.doc(token.line)
            self.constants.append(Constant(name, int(value.strip("()")), self.trailing(token.end_line) or comment,
                                           self.section))
        else:
            raise HeaderError(token.line, f"{name} is neither an integer nor the INIT of a struct")

    def typedef(self):
        start = self.take("typedef")
        comment = self.doc(start.line)
        if self.accept("struct"):
            name = self.take(kind="word").text
            if self.accept("{"):
                self.struct(name, comment)
            else:
                if self.take(kind="word").text != name:
                    raise HeaderError(start.line, f"the typedef of {name} has another name")
                self.take(";")
                self.handles.append((name, comment or self.trailing(start.line)))
            return
        begin = self.at
        returns = self.type()
        self.take("(")
        self.take("*")
        name = self.take(kind="word")
        self.take(")")
        if not re.fullmatch(r"epl_\w+_fn", name.text):
            raise HeaderError(name.line, f"the callback {name.text} should be called epl_..._fn")
        arguments = self.arguments()
        self.take(";")
        self.callbacks.append(Callback(name.text, returns, arguments, comment, self.section, self.joined(begin)))

    def struct(self, name, comment):
        fields, above = [], ""
        while not self.accept("}"):
            token = self.peek()
            if token.kind == "comment":
                self.at += 1
                above = words_of_comment(token.text)
                continue
            of = self.type()
            field = self.take(kind="word")
            array = ""
            if self.accept("["):
                array = self.take(kind="word").text
                self.take("]")
            end = self.take(";")
            # A line on its own above belongs to what follows, one behind to what stands before it.
            words = " ".join(filter(None, (above, self.trailing(end.line))))
            fields.append(Field(field.text, of, words, field.line, array))
            above = ""
        if self.take(kind="word").text != name:
            raise HeaderError(token.line, f"the typedef of {name} has another name")
        self.take(";")
        self.structs.append(Struct(name, fields, comment, self.section))

    def joined(self, begin):
        """The tokens from `begin` to here, as a declaration on one line."""
        text = " ".join(t.text for t in self.tokens[begin:self.at - 1])
        text = re.sub(r" ([,;)(\]*])", r"\1", text)
        text = re.sub(r"([(\[]) ", r"\1", text)
        text = re.sub(r"\*(\w)", r"* \1", text)
        return re.sub(r"([\w*]) ?\(\* (\w+)\)\(", r"\1 (*\2)(", text)

    def function(self):
        start = self.take("EPL_API")
        comment = self.doc(start.line)
        begin, words, since = self.at, set(), None
        while self.peek().text.startswith("EPL_"):
            word = self.take().text
            if word == "EPL_SINCE":
                self.take("(")
                major = int(self.take(kind="number").text)
                self.take(",")
                since = (major, int(self.take(kind="number").text))
                self.take(")")
                begin = self.at
            elif word in ("EPL_ANY_THREAD", "EPL_ONE_CALLER", "EPL_QUICK", "EPL_BLOCKING", "EPL_SIGNAL_SAFE",
                          "EPL_CHECKED"):
                words.add(word)
            else:
                raise HeaderError(start.line, f"{word} is no annotation of a function")
        returns = self.type()
        name = self.take(kind="word").text
        arguments = self.arguments()
        self.take(";")
        self.functions.append(Function(
            name, returns, arguments, comment, self.section, self.joined(begin), since,
            "any" if "EPL_ANY_THREAD" in words else "one" if "EPL_ONE_CALLER" in words else "",
            "EPL_QUICK" in words, "EPL_BLOCKING" in words, "EPL_SIGNAL_SAFE" in words, "EPL_CHECKED" in words,
            start.line))
        if len({"EPL_ANY_THREAD", "EPL_ONE_CALLER"} & words) != 1:
            raise HeaderError(start.line, f"{name} must be either EPL_ANY_THREAD or EPL_ONE_CALLER")

    def type(self):
        const = self.accept("const")
        self.accept("struct")
        base = self.take(kind="word")
        pointers = []
        while self.accept("*"):
            pointers.append(self.accept("const"))
        return Type(base.text, const, tuple(pointers))

    def arguments(self):
        self.take("(")
        found = []
        if self.peek().text == "void" and self.tokens[self.at + 1].text == ")":
            self.at += 2
            return found
        while True:
            of = self.type()
            argument = Argument("", of, self.tokens[self.at - 1].line)
            while self.peek().text in FLAGS or self.peek().text in LENGTHS:
                word = self.take()
                if word.text in FLAGS:
                    setattr(argument, FLAGS[word.text], True)
                else:
                    self.take("(")
                    argument.length, argument.role = self.take(kind="word").text, LENGTHS[word.text]
                    self.take(")")
            argument.name = self.take(kind="word").text
            found.append(argument)
            if self.accept(")"):
                return found
            self.take(",")

    def finish(self):
        import rules
        comments = {name: comment for name, comment in self.handles}
        interface = Interface(self.constants, [name for name, _ in self.handles], self.structs, self.callbacks,
                              self.functions, self.sections, self.top, comments)
        rules.check(interface, self.inits, HeaderError)
        return interface


def read(path):
    return Reader(path.read_text()).read()
