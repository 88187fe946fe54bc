// Package validate is the common ground of the packages beneath it, which
// check maps of strings in specs: settings whose names and values the schema
// of a kind cannot describe. They give a list of problems, each with its key,
// for a condition that tells a person what to write instead.
//
// It is pure. It must not know a kind, a cluster, or the time.
package validate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing that is wrong with a map of strings.
type Problem struct {
	// Key of the entry.
	Key string
	// Problem says what is wrong with it.
	Problem string
	// Hint says what to write instead.
	Hint string
	// Unknown: the key itself is not known. Whoever uses the map may still hand
	// it on to somebody who may know better; no other problem can be let be.
	Unknown bool
}

// String gives the problem as one sentence.
func (p Problem) String() string {
	return fmt.Sprintf("%s: %s; %s", p.Key, p.Problem, p.Hint)
}

// Join gives all problems as one text for the message of a condition.
func Join(problems []Problem) string {
	out := make([]string, len(problems))
	for i, p := range problems {
		out[i] = p.String()
	}
	return strings.Join(out, ". ")
}

// Keys gives the keys of a map in order, so that problems have an order.
func Keys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// UnknownKey makes the problem of a key that is not known, with the nearest
// known one, or all of them, as a hint.
func UnknownKey(key string, known []string) Problem {
	p := Problem{Key: key, Problem: "is not known", Unknown: true}
	if near := nearest(key, known); near != "" {
		p.Hint = fmt.Sprintf("did you mean %s?", near)
		return p
	}
	sorted := slices.Clone(known)
	slices.Sort(sorted)
	p.Hint = "known are " + strings.Join(sorted, ", ")
	return p
}

// nearest gives the known word that differs from the key by case, by '-', '_'
// and blanks, or by at most two letters; or nothing.
func nearest(key string, known []string) string {
	plain := strings.NewReplacer("-", "", "_", "", " ", "")
	fold := func(s string) string { return strings.ToLower(plain.Replace(s)) }
	best, bestDistance := "", 3
	for _, k := range known {
		if d := distance(fold(key), fold(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete or replace between two
// words (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// Int reads a whole number between two bounds, both included. It gives what is
// wrong when it is none.
func Int(value string, lo, hi int64) (n int64, problem string) {
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Sprintf("%q is not a whole number", value)
	case n < lo || n > hi:
		return 0, fmt.Sprintf("%d is not between %d and %d", n, lo, hi)
	}
	return n, ""
}

// Float reads a number between two bounds, both included.
func Float(value string, lo, hi float64) (f float64, problem string) {
	f, err := strconv.ParseFloat(value, 64)
	switch {
	case err != nil || math.IsNaN(f) || math.IsInf(f, 0):
		return 0, fmt.Sprintf("%q is not a number", value)
	case f < lo || f > hi:
		return 0, fmt.Sprintf("%s is not between %v and %v", value, lo, hi)
	}
	return f, ""
}

// IsCrushName reports whether Ceph takes the word as the name of a CRUSH
// bucket, type or device class: letters, digits, '_', '.' and '-' (and '~' for
// the part of a root with one device class), not starting with '-'.
func IsCrushName(s string) bool {
	if s == "" || s[0] == '-' {
		return false
	}
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("_.-~", r):
		default:
			return false
		}
	}
	return true
}
