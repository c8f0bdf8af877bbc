package epl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// However a program prints or logs what has a secret, the secret is not in the text.
func TestNoTextShowsASecret(t *testing.T) {
	options := SessionOptions{Ranks: 2, Secret: "hush"}
	launch := Launch{Ranks: 2, secret: "hush"}
	for _, value := range []any{options, &options, []SessionOptions{options}, launch, &launch} {
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("starts", "with", value)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("starts", "with", value)
		document, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{fmt.Sprintf("%v", value), fmt.Sprintf("%+v", value), fmt.Sprintf("%#v", value),
			fmt.Sprintf("%s", value), log.String(), string(document)} {
			if strings.Contains(text, "hush") {
				t.Errorf("%T shows its secret: %s", value, text)
			}
		}
	}
	if text := options.String(); !strings.Contains(text, "Ranks:2") || !strings.Contains(text, "Secret:(hidden)") {
		t.Error(text)
	}
}
