package main

import (
	"encoding/json"
	"math"
	"strconv"
)

// Number is null in JSON where it is not finite: JSON has no word for that.
type Number float64

func (n Number) MarshalJSON() ([]byte, error) { return appendNumber(nil, float64(n)), nil }

func (n *Number) UnmarshalJSON(text []byte) error {
	value := math.NaN()
	if string(text) != "null" {
		if err := json.Unmarshal(text, &value); err != nil {
			return err
		}
	}
	*n = Number(value)
	return nil
}

// Numbers are the same in a row.
type Numbers []float64

func (all Numbers) MarshalJSON() ([]byte, error) {
	text := []byte{'['}
	for i, one := range all {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendNumber(text, one)
	}
	return append(text, ']'), nil
}

func (all *Numbers) UnmarshalJSON(text []byte) error {
	var given []Number
	if err := json.Unmarshal(text, &given); err != nil {
		return err
	}
	*all = make(Numbers, len(given))
	for i, one := range given {
		(*all)[i] = float64(one)
	}
	return nil
}

func appendNumber(text []byte, value float64) []byte {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return append(text, "null"...)
	}
	return strconv.AppendFloat(text, value, 'g', -1, 64)
}
