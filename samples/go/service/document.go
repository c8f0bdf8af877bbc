package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"
)

const (
	largestDocument = 16 << 20
	deepest         = 100 // objects and lists within each other
)

// document reads a body of JSON.
func document(r *http.Request, into any) error {
	if !isJSON(r) {
		return errNoJSON
	}
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, largestDocument))
	if err != nil {
		return err
	}
	return fromJSON("the body", text, into)
}

// fromJSON reads an object into a struct or a map. encoding/json takes "Steps" for "steps", and of a name that stands twice
// the last: other readers take the first, so that two of them would see two jobs. Refusals name no type of Go's.
func fromJSON(what string, text []byte, into any) error {
	if text = bytes.TrimSpace(text); !bytes.HasPrefix(text, []byte("{")) { // a null would be an object without fields
		return fmt.Errorf("%s is an object of JSON", what)
	}
	if !utf8.Valid(text) {
		return fmt.Errorf("%s is not UTF-8", what)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	err := checkNames(decoder, reflect.TypeOf(into).Elem(), 0)
	if err == nil {
		if _, end := decoder.Token(); end != io.EOF {
			return fmt.Errorf("%s is more than one JSON document", what)
		}
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", what, inJSON(err))
	}
	return nil
}

// checkNames goes through a value that is read into a type: each object's names are those of the type, and none stands
// twice.
func checkNames(decoder *json.Decoder, of reflect.Type, depth int) error {
	if depth > deepest {
		return errors.New("it is nested too deep")
	}
	begin, err := decoder.Token()
	if begin != json.Delim('{') && begin != json.Delim('[') {
		return err
	}
	seen := map[string]bool{}
	for decoder.More() {
		within := elementOf(of)
		if begin == json.Delim('{') {
			token, err := decoder.Token()
			if err != nil {
				return err
			}
			name := token.(string)
			if seen[name] {
				return fmt.Errorf("%q stands twice in an object", excerpt(name))
			}
			seen[name] = true
			if of != nil && of.Kind() == reflect.Struct {
				field := fieldOf(of, name)
				if field == nil {
					return fmt.Errorf("there is no field %q", excerpt(name))
				}
				within = field
			}
		}
		if err := checkNames(decoder, within, depth+1); err != nil {
			return err
		}
	}
	_, err = decoder.Token()
	return err
}

// elementOf is the type of what a map or a slice holds; nil: anything.
func elementOf(of reflect.Type) reflect.Type {
	if of != nil && (of.Kind() == reflect.Map || of.Kind() == reflect.Slice) {
		return of.Elem()
	}
	return nil
}

func fieldOf(of reflect.Type, name string) reflect.Type {
	for i := range of.NumField() {
		if of.Field(i).Tag.Get("json") == name {
			return of.Field(i).Type
		}
	}
	return nil
}

// inJSON says in words of JSON what encoding/json says in those of Go.
func inJSON(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends early")
	}
	if !errors.As(err, &wrong) {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	found := map[string]string{"array": "a list", "object": "an object", "string": "a text", "bool": "true or false",
		"number": "a number"}[wrong.Value]
	if found == "" {
		found = strings.TrimPrefix(excerpt(wrong.Value), "number ")
	}
	expected := map[reflect.Kind]string{reflect.Int: "an integer", reflect.Int64: "an integer",
		reflect.Float64: "a number that is not too large", reflect.String: "a text", reflect.Slice: "a list"}[wrong.Type.Kind()]
	if expected == "" {
		expected = "an object"
	}
	where := wrong.Field
	if where == "" {
		where = "a value"
	}
	return fmt.Errorf("%s is %s; %s is expected", excerpt(where), found, expected)
}
