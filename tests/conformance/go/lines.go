package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// text is a quoted text, which no word is. Words are strings, lists []any, structs map[string]any.
type text []byte

func space(b byte) bool { return b == ' ' || b == '\t' }

// parsed takes the next value off a line; nil at its end.
func parsed(line *string) any {
	for *line != "" && space((*line)[0]) {
		*line = (*line)[1:]
	}
	if *line == "" {
		return nil
	}
	first := (*line)[0]
	switch first {
	case '[':
		*line = (*line)[1:]
		items := []any{}
		for item := parsed(line); item != "]"; item = parsed(line) {
			items = append(items, item)
		}
		return items
	case '{':
		*line = (*line)[1:]
		items := map[string]any{}
		for name := parsed(line); name != "}"; name = parsed(line) {
			items[name.(string)] = parsed(line)
		}
		return items
	case ']', '}':
		*line = (*line)[1:]
		return string(first)
	case '"':
		return quotedText(line)
	}
	end := strings.IndexAny(*line, " \t[]{}")
	if end < 0 {
		end = len(*line)
	}
	word := (*line)[:end]
	*line = (*line)[end:]
	return word
}

func quotedText(line *string) text {
	made := text{}
	rest := (*line)[1:]
	for ; rest[0] != '"'; rest = rest[1:] {
		b := rest[0]
		if b == '\\' {
			rest = rest[1:]
			switch b = rest[0]; b {
			case 'n':
				b = '\n'
			case 'x':
				of, err := hex.DecodeString(rest[1:3])
				if err != nil {
					panic(err)
				}
				b, rest = of[0], rest[2:]
			}
		}
		made = append(made, b)
	}
	*line = rest[1:]
	return made
}

func word(value any) string {
	if t, ok := value.(text); ok {
		return string(t)
	}
	return value.(string)
}

// bytesOf is the memory that a value is; nil for NULL.
func bytesOf(value any) []byte {
	if t, ok := value.(text); ok {
		return t
	}
	of := value.(string)
	if of == "NULL" {
		return nil
	}
	kind, rest, ok := strings.Cut(of, ":")
	if !ok {
		found, ok := buffer(of)
		if !ok {
			panic(of + " is no memory")
		}
		return found
	}
	made := []byte{}
	if kind == "zeros" {
		count, _ := strconv.Atoi(rest)
		return make([]byte, count)
	}
	for _, n := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }) {
		if kind == "f32" {
			number, _ := strconv.ParseFloat(n, 32)
			made = binary.NativeEndian.AppendUint32(made, math.Float32bits(float32(number)))
		} else {
			number, _ := strconv.ParseInt(n, 10, 64)
			made = binary.NativeEndian.AppendUint64(made, uint64(number))
		}
	}
	return made
}

// numberText has units of 1/10000, so that no language's way to print numbers matters.
func numberText(number float64) string {
	switch {
	case math.IsNaN(number):
		return "nan"
	case number > 1e14:
		return "large"
	case number < -1e14:
		return "-large"
	}
	return fmt.Sprintf("%de-4", int64(math.Floor(number*1e4+0.5)))
}

func quoted(data string) string {
	var made strings.Builder
	made.WriteByte('"')
	for _, b := range []byte(data) {
		if b >= 0x20 && b <= 0x7e && b != '"' && b != '\\' {
			made.WriteByte(b)
		} else {
			fmt.Fprintf(&made, "\\x%02x", b)
		}
	}
	made.WriteByte('"')
	return made.String()
}
