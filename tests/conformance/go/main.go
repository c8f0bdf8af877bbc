// The interpreter of scripts for Go: tester TABLE SCRIPT. It calls the raw layer by name, as the table says.
// tests/conformance/README.md says what a line means.
package main

import (
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"unsafe"

	"epl.ai/go/internal/raw"
)

type field struct{ name, base, role, partner, array string }

type argument struct {
	name, base, role, kind string
	kept                   bool
}

type function struct {
	returns   string
	arguments []argument
}

var (
	constants  = map[string]int64{}
	structs    = map[string][]field{}
	interfaces = map[string]*function{}
	variables  = map[string]unsafe.Pointer{}
)

func readTable(path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	name := ""
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		w := strings.Fields(line)
		switch w[0] {
		case "constant":
			constants[w[1]], _ = strconv.ParseInt(w[2], 10, 64)
		case "struct":
			name = w[1]
		case "field":
			structs[name] = append(structs[name], field{w[1], w[2], w[3], w[4], w[5]})
		case "function":
			name = w[1]
			interfaces[name] = &function{returns: w[2]}
		case "argument":
			f := interfaces[name]
			f.arguments = append(f.arguments, argument{w[1], w[2], w[3], w[4], w[5] == "1"})
		}
	}
}

func camel(name string) string {
	made := ""
	for _, part := range strings.Split(name, "_") {
		made += strings.ToUpper(part[:1]) + part[1:]
	}
	return made
}

// --- Values in

func integer(value any) int64 {
	of := value.(string)
	if constant, ok := constants[of]; ok {
		return constant
	}
	if number, err := strconv.ParseInt(of, 10, 64); err == nil {
		return number
	}
	number, err := strconv.ParseUint(of, 10, 64)
	if err != nil {
		panic(err)
	}
	return int64(number)
}

func handle(value any) unsafe.Pointer {
	if value == "NULL" {
		return nil
	}
	found, ok := variables[value.(string)]
	if !ok {
		panic(value.(string) + " is no handle")
	}
	return found
}

// setPointer puts an address where a pointer of any type is.
func setPointer(place reflect.Value, address unsafe.Pointer) {
	*(*unsafe.Pointer)(place.Addr().UnsafePointer()) = address
}

func setScalar(place reflect.Value, value any) {
	switch place.Kind() {
	case reflect.Float64:
		number, err := strconv.ParseFloat(value.(string), 64)
		if err != nil {
			panic(err)
		}
		place.SetFloat(number)
	case reflect.Uint64, reflect.Uint32:
		place.SetUint(uint64(integer(value)))
	default:
		place.SetInt(integer(value))
	}
}

func setCallback(place reflect.Value, name string) {
	setPointer(place, hookFunction(name))
}

// fill is the struct of that name, a pointer to it.
func fill(name string, value any) reflect.Value {
	made := reflect.ValueOf(newStruct[name]())
	of := value.(map[string]any)
	for _, f := range structs[name] {
		key := f.name
		if f.role == "userdata" || f.role == "callback" || f.role == "destroy" {
			key = f.partner
		}
		given, ok := of[key]
		place := made.Elem().FieldByName(camel(f.name))
		switch {
		case !ok || f.role == "length" || (key != f.name && given == "NULL"):
		case f.role == "text":
			data := bytesOf(given)
			if given != "NULL" {
				setPointer(place, memory(data))
			}
			made.Elem().FieldByName(camel(f.partner)).SetUint(uint64(len(data)))
		case f.role == "handle":
			setPointer(place, handle(given))
		case f.role == "userdata":
			place.SetUint(uint64(newHook(given.(string))))
		case f.role == "callback":
			setCallback(place, f.base)
		case f.role == "destroy":
			setCallback(place, "gone")
		case f.array != "-":
			for i, item := range given.([]any) {
				setScalar(place.Index(i), item)
			}
		default:
			setScalar(place, given)
		}
	}
	return made
}

// --- Values out

type call struct {
	parts   []string
	targets []string
	quiet   bool
}

func (c *call) give(text string) { c.parts = append(c.parts, text) }

func (c *call) giveValue(text string, some bool) {
	if c.quiet {
		text = "none"
		if some {
			text = "some"
		}
	}
	c.give(text)
}

func (c *call) giveText(text string) { c.giveValue(quoted(text), text != "") }

func (c *call) giveHandle(handle unsafe.Pointer) {
	name := c.targets[0]
	c.targets = c.targets[1:]
	variables[name] = handle
	if handle == nil {
		name = "NULL"
	}
	c.give(name)
}

func scalarText(value reflect.Value) string {
	if value.Kind() == reflect.Float64 {
		return numberText(value.Float())
	}
	return fmt.Sprint(value.Interface())
}

func (c *call) giveScalar(value reflect.Value) { c.giveValue(scalarText(value), !value.IsZero()) }

func (c *call) giveStruct(name string, of reflect.Value) {
	parts := []string{}
	for _, f := range structs[name] {
		value := of.FieldByName(camel(f.name))
		text := ""
		switch {
		case f.role == "hidden":
			text = "*"
		case f.role == "text" && value.IsNil():
			text = quoted("")
		case f.role == "text":
			length := of.FieldByName(camel(f.partner)).Uint()
			text = quoted(string(unsafe.Slice((*byte)(value.UnsafePointer()), length)))
		case f.role == "scalar" && f.array != "-":
			items := []string{}
			for i := 0; i < value.Len(); i++ {
				items = append(items, scalarText(value.Index(i)))
			}
			for len(items) > 0 && items[len(items)-1] == "0" {
				items = items[:len(items)-1]
			}
			text = "[" + strings.Join(items, ",") + "]"
		case f.role == "scalar":
			text = scalarText(value)
		default:
			continue
		}
		parts = append(parts, f.name+"="+text)
	}
	c.giveValue("{"+strings.Join(parts, " ")+"}", true)
}

func (c *call) giveFailure(failure *raw.Error) {
	code := raw.ErrorCode(failure)
	c.give(fmt.Sprintf("error %d %s", code, raw.ErrorCodeName(code)))
	if !c.quiet {
		c.give(quoted(raw.ErrorMessage(failure)))
		c.give(quoted(raw.ErrorWhere(failure)))
		c.give(fmt.Sprint(raw.ErrorRank(failure), raw.ErrorRetryable(failure)))
	}
	raw.ErrorDestroy(failure)
	for _, name := range c.targets {
		variables[name] = nil
	}
}

func (c *call) giveMemory(data unsafe.Pointer, of *raw.Tensor) {
	if c.quiet || data == nil {
		c.giveValue("NULL", data != nil)
		return
	}
	all := unsafe.Slice((*byte)(data), raw.TensorBytes(of))
	if raw.TensorDtype(of) != raw.EPL_DTYPE_F32 {
		c.give(hex.EncodeToString(all))
		return
	}
	for i := 0; i < len(all); i += 4 {
		c.give(numberText(float64(math.Float32frombits(*(*uint32)(unsafe.Pointer(&all[i]))))))
	}
}

// --- Calls

// in sets a parameter, and says how many bytes or elements it has.
func in(a argument, place reflect.Value, value any) int {
	switch a.role {
	case "text":
		data := bytesOf(value)
		place.SetString(string(data))
		return len(data)
	case "bytes":
		data := bytesOf(value)
		switch {
		case a.kept && value != "NULL":
			setPointer(place, memory(data))
		case !a.kept:
			place.SetBytes(data)
		}
		return len(data)
	case "handle", "pointer":
		setPointer(place, handle(value))
	case "struct":
		if value != "NULL" {
			place.Set(fill(a.base, value))
		}
	case "handles", "array", "structs":
		if value == "NULL" {
			return 0
		}
		items := value.([]any)
		place.Set(reflect.MakeSlice(place.Type(), len(items), len(items)))
		for i, item := range items {
			switch a.role {
			case "handles":
				setPointer(place.Index(i), handle(item))
			case "array":
				setScalar(place.Index(i), item)
			default:
				place.Index(i).Set(fill(a.base, item).Elem())
			}
		}
	default:
		setScalar(place, value)
	}
	return 0
}

func run(name string, values []any, c *call) {
	f, ok := interfaces[name]
	if !ok {
		panic("no function " + name)
	}
	if _, ok := functions[name]; !ok { // a struct is made with its defaults
		of := f.arguments[0].base
		c.giveStruct(of, reflect.ValueOf(newStruct[of]()).Elem())
		return
	}
	called := reflect.ValueOf(functions[name])
	passed := []reflect.Value{}
	written := map[string]reflect.Value{}
	hook, size := uintptr(0), 0
	for _, a := range f.arguments {
		result := a.kind == "out" && (a.role == "scalar" || a.role == "handle" || a.role == "pointer")
		if result || a.kind == "text_length" || len(passed) == called.Type().NumIn() {
			continue
		}
		place := reflect.New(called.Type().In(len(passed))).Elem()
		switch {
		case a.role == "length" && place.Kind() != reflect.Uintptr:
			continue // a slice and a string know theirs
		case a.role == "length":
			place.SetUint(uint64(size))
		case a.kind == "out" && a.role == "handles":
			place.Set(reflect.MakeSlice(place.Type(), len(c.targets), len(c.targets)))
			written[a.name] = place
		case a.kind == "out":
			place.Set(reflect.ValueOf(newStruct[a.base]()))
			written[a.name] = place.Elem()
		case a.kind == "hook":
			if values[0] != "NULL" {
				hook = newHook(values[0].(string))
				setCallback(place, a.base)
			}
			values = values[1:]
		case a.role == "userdata":
			place.SetUint(uint64(hook))
		case a.kind == "with":
			if hook != 0 {
				setCallback(place, "gone")
			}
		default:
			size = in(a, place, values[0])
			values = values[1:]
		}
		passed = append(passed, place)
	}
	if len(values) != 0 {
		panic("too many arguments")
	}
	results := called.Call(passed)
	last := len(results) - 1
	switch f.returns {
	case "error":
		if !results[last].IsNil() {
			c.giveFailure((*raw.Error)(results[last].UnsafePointer()))
			return
		}
		c.give("ok")
	case "text":
		c.giveText(results[last].String())
	case "memory":
		c.giveMemory(results[last].UnsafePointer(), (*raw.Tensor)(passed[0].UnsafePointer()))
	case "handle":
		c.giveHandle(results[last].UnsafePointer())
	case "void":
	default:
		c.giveScalar(results[last])
	}
	for _, a := range f.arguments {
		if a.kind != "out" {
			continue
		}
		switch {
		case a.role == "struct":
			c.giveStruct(a.base, written[a.name])
		case a.role == "handles":
			for i := 0; i < written[a.name].Len(); i++ {
				c.giveHandle(written[a.name].Index(i).UnsafePointer())
			}
		case a.base == "epl_text":
			text := (*raw.Text)(results[0].UnsafePointer())
			c.giveText(raw.TextData(text))
			raw.TextDestroy(text)
			results = results[1:]
		default:
			if a.role == "scalar" {
				c.giveScalar(results[0])
			} else {
				c.giveHandle(results[0].UnsafePointer())
			}
			results = results[1:]
		}
	}
}

func command(name string, words []any) bool {
	var err error
	done := name
	switch name {
	case "buffer":
		setBuffer(word(words[0]), bytesOf(words[1]))
	case "read":
		var data []byte
		data, err = os.ReadFile(word(words[1]))
		setBuffer(word(words[0]), data)
	case "cut":
		setBuffer(word(words[0]), bytesOf(words[0])[:integer(words[1])])
	case "write":
		err = os.WriteFile(word(words[0]), bytesOf(words[1]), 0o666)
	case "await":
		name := word(words[0])
		fmt.Println("await:", name, awaitCount(name, integer(words[1])))
		return true
	case "signal":
		countName(word(words[0]))
	default:
		return false
	}
	if err != nil {
		panic(err)
	}
	fmt.Println(done+":", word(words[0]))
	return true
}

func main() {
	readTable(os.Args[1])
	script, err := os.ReadFile(os.Args[2])
	if err != nil {
		panic(err)
	}
	for _, line := range strings.Split(string(script), "\n") {
		words := []any{}
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for value := parsed(&line); value != nil; value = parsed(&line) {
			words = append(words, value)
		}
		if len(words) == 0 {
			continue
		}
		c := call{quiet: words[0] == "~"}
		if c.quiet {
			words = words[1:]
		}
		name := words[0].(string)
		words = words[1:]
		if command(name, words) {
			continue
		}
		for i, value := range words {
			if value == "->" {
				for _, target := range words[i+1:] {
					c.targets = append(c.targets, target.(string))
				}
				words = words[:i]
				break
			}
		}
		c.give(name + ":")
		run(name, words, &c)
		fmt.Println(strings.Join(c.parts, " "))
		if strings.HasSuffix(name, "_destroy") && words[0] != "NULL" {
			variables[words[0].(string)] = nil
		}
	}
}
