package main

import (
	"net/http"
	"regexp"
	"strings"
)

// What a host of this machine alone is called, as all the services say it.
var loopback = regexp.MustCompile(`^(?i:localhost|127(\.(0|[1-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])){3}|\[::1\])(:[0-9]{0,5})?$`)

// guard refuses what a browser sends for a page of somebody else: pages that a user of this machine looks at reach every
// address that the machine reaches. A token keeps them out by itself, so that then any name of the host will do.
func (t Token) guard(r *http.Request) error {
	if t == "" && (!loopback.MatchString(r.Host) || r.URL.User != nil) {
		return errForeign
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if _, host, _ := strings.Cut(origin, "://"); !strings.EqualFold(host, r.Host) {
			return errForeign
		}
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Method != http.MethodGet && r.Method != http.MethodHead {
		return errForeign
	}
	return nil
}

// isJSON: a form of another page's can say text/plain, not this.
func isJSON(r *http.Request) bool {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "application/json")
}
