// Package poolparams checks the parameters of a pool, which a PoolSpec gives as
// a map of strings and which reach Ceph as `osd pool set <pool> <key> <value>`.
// Ceph answers a wrong one with an error number; here it gets a sentence before
// it is sent.
//
// It is pure. It must not refuse what a newer Ceph may know: an unknown key is
// a problem marked as such, and whoever sends it may try.
package poolparams

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/castellan-storage/castellan/internal/validate"
)

// kind is how a value is read.
type kind int

const (
	integer  kind = iota // whole number between lo and hi
	float                // number between lo and hi
	flag                 // true, false, 1, 0, yes, no, on, off
	word                 // one of words
	name                 // name of a CRUSH rule or another pool
	bytes                // bytes, with or without a unit
	interval             // seconds
)

// parameter is what Ceph takes for a key.
type parameter struct {
	kind   kind
	lo, hi float64
	words  []string
}

// maxPGs is the largest number of placement groups that mons take for a pool
// by default (mon_max_pool_pg_num).
const maxPGs = 65536

// parameterFor gives what Ceph 19 and 20 take for a key of `osd pool set`
// (Ceph's documentation, "Pools", "Setting Pool Values").
func parameterFor(key string) (parameter, bool) {
	switch key {
	case "pg_num", "pgp_num", "pg_num_min", "pg_num_max":
		// 0 takes pg_num_min and pg_num_max back.
		lo := 1.0
		if strings.HasPrefix(key, "pg_num_") {
			lo = 0
		}
		return parameter{kind: integer, lo: lo, hi: maxPGs}, true
	case "size":
		return parameter{kind: integer, lo: 1, hi: 10}, true
	case "min_size":
		return parameter{kind: integer, lo: 1, hi: 255}, true
	case "crush_rule":
		return parameter{kind: name}, true
	case "pg_autoscale_mode":
		return parameter{kind: word, words: []string{"on", "off", "warn"}}, true
	case "pg_autoscale_bias":
		return parameter{kind: float, lo: 0, hi: 1000}, true
	case "target_size_ratio":
		return parameter{kind: float, lo: 0, hi: math.MaxFloat32}, true
	case "target_size_bytes", "target_max_bytes":
		return parameter{kind: bytes}, true
	case "target_max_objects", "hit_set_count", "hit_set_period", "hit_set_search_last_n",
		"cache_min_flush_age", "cache_min_evict_age", "min_read_recency_for_promote", "min_write_recency_for_promote":
		return parameter{kind: integer, lo: 0, hi: math.MaxInt32}, true
	case "bulk", "hashpspool", "nodelete", "nopgchange", "nosizechange", "noscrub", "nodeep-scrub",
		"write_fadvise_dontneed", "fast_read", "allow_ec_overwrites", "allow_ec_optimizations", "eio", "use_gmt_hitset":
		return parameter{kind: flag}, true
	case "compression_mode":
		return parameter{kind: word, words: []string{"none", "passive", "aggressive", "force"}}, true
	case "compression_algorithm":
		return parameter{kind: word, words: []string{"none", "snappy", "zlib", "zstd", "lz4"}}, true
	case "compression_required_ratio", "cache_target_dirty_ratio", "cache_target_dirty_high_ratio", "cache_target_full_ratio", "hit_set_fpp":
		return parameter{kind: float, lo: 0, hi: 1}, true
	case "compression_min_blob_size", "compression_max_blob_size", "csum_min_block", "csum_max_block":
		return parameter{kind: bytes}, true
	case "csum_type":
		return parameter{kind: word, words: []string{"none", "crc32c", "crc32c_16", "crc32c_8", "xxhash32", "xxhash64"}}, true
	case "hit_set_type":
		return parameter{kind: word, words: []string{"bloom", "explicit_hash", "explicit_object", "none"}}, true
	case "hit_set_grade_decay_rate", "read_ratio":
		return parameter{kind: integer, lo: 0, hi: 100}, true
	case "scrub_min_interval", "scrub_max_interval", "deep_scrub_interval":
		return parameter{kind: interval}, true
	case "scrub_priority":
		return parameter{kind: integer, lo: 0, hi: 100}, true
	case "recovery_priority":
		return parameter{kind: integer, lo: -10, hi: 10}, true
	case "recovery_op_priority":
		return parameter{kind: integer, lo: 0, hi: 63}, true
	case "fingerprint_algorithm":
		return parameter{kind: word, words: []string{"none", "sha1", "sha256", "sha512"}}, true
	case "dedup_tier":
		return parameter{kind: name}, true
	case "dedup_chunk_algorithm":
		return parameter{kind: word, words: []string{"none", "fastcdc", "fixed"}}, true
	case "dedup_cdc_chunk_size":
		return parameter{kind: bytes}, true
	}
	return parameter{}, false
}

// Known gives the keys that people may want to set.
func Known() []string {
	return []string{
		"allow_ec_optimizations", "allow_ec_overwrites", "bulk", "compression_algorithm", "compression_max_blob_size",
		"compression_min_blob_size", "compression_mode", "compression_required_ratio", "crush_rule", "csum_max_block",
		"csum_min_block", "csum_type", "deep_scrub_interval", "eio", "fast_read", "hashpspool", "min_size", "nodeep-scrub",
		"nodelete", "nopgchange", "noscrub", "nosizechange", "pg_autoscale_bias", "pg_autoscale_mode", "pg_num",
		"pg_num_max", "pg_num_min", "pgp_num", "read_ratio", "recovery_op_priority", "recovery_priority",
		"scrub_max_interval", "scrub_min_interval", "scrub_priority", "size", "target_size_bytes", "target_size_ratio",
		"write_fadvise_dontneed",
	}
}

// Check gives the problems of the parameters of a pool, by key in order.
func Check(parameters map[string]string) []validate.Problem {
	var problems []validate.Problem
	for _, key := range validate.Keys(parameters) {
		p, known := parameterFor(key)
		if !known {
			if key == "" || strings.ContainsFunc(key, notInKey) || key[0] == '-' {
				problems = append(problems, validate.Problem{Key: key, Problem: "is no name of a parameter",
					Hint: "write a name that `ceph osd pool set` takes, for instance compression_mode"})
				continue
			}
			problems = append(problems, validate.UnknownKey(key, Known()))
			// What is not known must still not break out of a command.
			if problem := control(parameters[key]); problem != "" {
				problems = append(problems, validate.Problem{Key: key, Problem: problem, Hint: "write the value on one line"})
			}
			continue
		}
		if problem, hint := p.check(parameters[key]); problem != "" {
			problems = append(problems, validate.Problem{Key: key, Problem: problem, Hint: hint})
		}
	}
	return append(problems, together(parameters)...)
}

// ConflictsWith gives the problem of a parameter that says something else than
// the field of the spec that rules the same, as Ceph's number of copies. The
// field goes first.
func ConflictsWith(parameters map[string]string, size uint) []validate.Problem {
	value, ok := parameters["size"]
	if !ok || size == 0 || value == fmt.Sprint(size) {
		return nil
	}
	return []validate.Problem{{
		Key:     "size",
		Problem: fmt.Sprintf("is %s, and replicated.size is %d", value, size),
		Hint:    "remove it: replicated.size is the number of copies",
	}}
}

// together finds values that are fine each and cannot be together.
func together(parameters map[string]string) []validate.Problem {
	lo, badLo := validate.Int(parameters["pg_num_min"], 0, maxPGs)
	hi, badHi := validate.Int(parameters["pg_num_max"], 0, maxPGs)
	if badLo != "" || badHi != "" || hi == 0 || lo <= hi {
		return nil
	}
	return []validate.Problem{{
		Key:     "pg_num_min",
		Problem: fmt.Sprintf("%d is above pg_num_max, %d", lo, hi),
		Hint:    "write a smaller pg_num_min or a larger pg_num_max",
	}}
}

func (p parameter) check(value string) (problem, hint string) {
	switch p.kind {
	case integer:
		_, problem = validate.Int(value, int64(p.lo), int64(p.hi))
		return problem, fmt.Sprintf("write a whole number from %d to %d", int64(p.lo), int64(p.hi))
	case float:
		_, problem = validate.Float(value, p.lo, p.hi)
		return problem, "write a number, for instance 0.5"
	case flag:
		switch value {
		case "true", "false", "1", "0", "yes", "no", "on", "off":
			return "", ""
		}
		return fmt.Sprintf("%q is neither true nor false", value), "write true or false"
	case word:
		for _, w := range p.words {
			if value == w {
				return "", ""
			}
		}
		return fmt.Sprintf("%q is none of its words", value), "write one of " + strings.Join(p.words, ", ")
	case name:
		if !validate.IsCrushName(value) {
			return fmt.Sprintf("%q is no name", value), "write letters, digits, '_', '.' and '-'"
		}
	case bytes:
		if q, err := resource.ParseQuantity(value); err != nil || q.Sign() < 0 {
			return fmt.Sprintf("%q is no number of bytes", value), "write a number of bytes, or a quantity such as 64Ki"
		}
	case interval:
		_, problem = validate.Float(value, 0, math.MaxInt32)
		return problem, "write a number of seconds, for instance 604800"
	}
	return "", ""
}

func notInKey(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-', r == '.':
		return false
	}
	return true
}

func control(value string) string {
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "its value holds a control character or a line break"
	}
	return ""
}
