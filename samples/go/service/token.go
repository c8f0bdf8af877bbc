package main

import (
	"crypto/subtle"
	"fmt"
	"net"
	"os"
	"strings"
)

// Token is what clients must bring to either door; empty: nothing.
type Token string

// readToken reads a token from a file; no file, no token.
func readToken(file string) (Token, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := Token(strings.TrimSpace(string(text)))
	if token == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	return token, nil
}

// known compares in a time that does not tell how much of a token was right.
func (t Token) known(given string) bool {
	return t == "" || subtle.ConstantTimeCompare([]byte(given), []byte(t)) == 1
}

// bearer is the token of an Authorization header. The word before it has no case.
func bearer(header string) string {
	if scheme, token, ok := strings.Cut(header, " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return ""
}

// listen opens a door. One that other hosts reach is not opened without a token.
func (t Token) listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	if at := listener.Addr().(*net.TCPAddr); t == "" && !at.IP.IsLoopback() {
		listener.Close()
		return nil, fmt.Errorf("%s is reached from other hosts, so clients need a token: -token-file", at)
	}
	return listener, nil
}
