// Package monhost takes the option mon_host apart: what connects to a cluster's mons and
// what makes the first of them read the same list.
//
// It is pure. It must not look up a name or connect, and it must not decide which mons there
// are. What is no plain list of addresses with ports is an error, never half a list.
package monhost

import (
	"fmt"
	"net/netip"
	"strings"
)

// V1 and V2 are the protocols of a messenger, as they stand before an address.
const (
	V1 = "v1"
	V2 = "v2"
)

// Addr is one address of a mon.
type Addr struct {
	// Proto is V1 or V2, or "" where the list leaves it open.
	Proto string
	netip.AddrPort
}

// Parse gives the addresses of each mon of a list.
func Parse(list string) ([][]Addr, error) {
	var mons [][]Addr
	for _, entry := range Split(list) {
		addrs, err := Addrs(entry)
		if err != nil {
			return nil, err
		}
		mons = append(mons, addrs)
	}
	return mons, nil
}

// Split gives the entries of a list, one for each mon, as they are: it cuts at the commas that
// are in no brackets.
func Split(list string) []string {
	var entries []string
	depth, from := 0, 0
	cut := func(to int) {
		if e := strings.TrimSpace(list[from:to]); e != "" {
			entries = append(entries, e)
		}
		from = to + 1
	}
	for i, c := range list {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth == 0:
			cut(i)
		}
	}
	if from < len(list) {
		cut(len(list))
	}
	return entries
}

// Addrs reads an entry: an address with a port, its protocol before it or not, or several in
// brackets, such as [v2:10.0.0.1:3300,v1:10.0.0.1:6789].
func Addrs(entry string) ([]Addr, error) {
	words := []string{entry}
	if Vector(entry) {
		words = strings.Split(entry[1:len(entry)-1], ",")
	}
	var addrs []Addr
	for _, word := range words {
		a := Addr{}
		text := strings.TrimSpace(word)
		for _, proto := range []string{V1, V2} {
			if rest, ok := strings.CutPrefix(text, proto+":"); ok {
				a.Proto, text = proto, rest
				break
			}
		}
		var err error
		if a.AddrPort, err = netip.ParseAddrPort(text); err != nil {
			return nil, fmt.Errorf("reading the mon's address %q: %w", entry, err)
		}
		if a.Port() == 0 {
			return nil, fmt.Errorf("reading the mon's address %q: it has no port", entry)
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

// Vector reports whether an entry is a list in brackets with protocols, which is how a mon's
// map has a mon's addresses.
func Vector(entry string) bool {
	return strings.HasPrefix(entry, "[v") && strings.HasSuffix(entry, "]")
}
