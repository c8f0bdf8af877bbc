package main

import (
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// guard refuses what a browser sends for a page of somebody else: pages that a user of this machine looks at reach every
// address that the machine reaches. A token keeps them out by itself, so that then any name of the host will do.
func (t Token) guard(r *http.Request) error {
	host := hostName(r.Host)
	if address := net.ParseIP(host); t == "" && host != "localhost" && (address == nil || !address.IsLoopback()) {
		return errForeign
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if from, err := url.Parse(origin); err != nil || !strings.EqualFold(from.Host, r.Host) {
			return errForeign
		}
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Method != http.MethodGet {
		return errForeign
	}
	return nil
}

// hostName is a host without its port.
func hostName(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// isJSON: a form of another page's can say text/plain, not this.
func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}
