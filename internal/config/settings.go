// Package config keeps Ceph's own settings as a CephCluster's spec says: the
// options in the mons' configuration database, the full ratios, and the release
// that OSDs must run.
//
// It removes what it has set and nobody asks for any more, and it never touches an
// option that it has not set. Values from Secrets are written to Ceph and to a
// Secret's hash, nowhere else.
package config

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	cephconfig "github.com/castellan-storage/castellan/internal/ceph/config"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
)

// Option names one setting: a section (global, mon, osd.3, client.rgw.a) and an
// option's name with underscores.
type Option struct{ Who, Name string }

// String is the option as messages and the record have it.
func (o Option) String() string { return o.Who + " " + o.Name }

// Value of a setting. Its text is a secret, since it may come from one.
type Value struct {
	Text ceph.Secret
	// FromSecret keeps the value out of messages.
	FromSecret bool
	// From names the field or the object that asks for it.
	From string
}

func plain(s string) Value { return Value{Text: ceph.NewSecret(s)} }

// name is an option's name as Ceph keeps it: blanks and dashes are underscores.
// Options of mgr modules (mgr/dashboard/ssl) stay as they are.
func name(s string) string {
	s = strings.TrimSpace(s)
	if strings.Contains(s, "/") {
		return s
	}
	return strings.NewReplacer(" ", "_", "-", "_").Replace(s)
}

// base are the settings that every cluster gets. A setting of the user's for the
// same option wins.
func base(spec *cephv1.ClusterSpec) map[Option]Value {
	opts := map[Option]Value{
		{"global", "mon_allow_pool_delete"}:              plain("true"),
		{"global", "mon_allow_pool_size_one"}:            plain("true"),
		{"global", "mon_cluster_log_file"}:               plain(""),
		{"mon", "auth_allow_insecure_global_id_reclaim"}: plain("false"),
	}
	if spec.LogCollector.Enabled {
		opts[Option{"global", "log_to_file"}] = plain("true")
	}
	k := spec.Network.Connections
	encrypted := k != nil && k.Encryption != nil && k.Encryption.Enabled
	switch {
	case encrypted:
		for _, o := range []string{"ms_cluster_mode", "ms_service_mode", "ms_client_mode"} {
			opts[Option{"global", o}] = plain("secure")
		}
		opts[Option{"global", "rbd_default_map_options"}] = plain("ms_mode=secure")
	case pods.Msgr2Only(&spec.Network):
		// The kernel speaks v1 unless it is told, and there is nobody to answer.
		opts[Option{"global", "rbd_default_map_options"}] = plain("ms_mode=prefer-crc")
	}
	if k != nil && k.Compression != nil && k.Compression.Enabled {
		opts[Option{"global", "ms_osd_compress_mode"}] = plain("force")
	}
	networks(&spec.Network, opts)
	return opts
}

// networks tells daemons on the network of the nodes which of their addresses to use.
// On the pod network each has one address, which need not be in any of the ranges.
func networks(n *cephv1.NetworkSpec, opts map[Option]Value) {
	if n.AddressRanges == nil || !n.IsHost() {
		return
	}
	for name, ranges := range map[string]cephv1.CIDRList{"public_network": n.AddressRanges.Public, "cluster_network": n.AddressRanges.Cluster} {
		if len(ranges) == 0 {
			continue
		}
		list := make([]string, len(ranges))
		for i, r := range ranges {
			list[i] = string(r)
		}
		opts[Option{"global", name}] = Value{Text: ceph.NewSecret(strings.Join(list, ",")), From: "spec.network.addressRanges"}
	}
}

// wanted adds the user's settings. secrets holds the values that
// cephConfigFromSecret names.
func wanted(spec *cephv1.ClusterSpec, secrets map[Option]Value) map[Option]Value {
	opts := base(spec)
	for who, m := range spec.CephConfig {
		for k, v := range m {
			opts[Option{who, name(k)}] = Value{Text: ceph.NewSecret(v), From: fmt.Sprintf("spec.cephConfig[%s][%s]", who, k)}
		}
	}
	maps.Copy(opts, secrets)
	return opts
}

// Record is what has been set, so that it can be removed again: for each option a
// hash of the wanted value, and one of the value as Ceph shows it since (Ceph
// writes 10G as 10737418240).
type Record map[string]Entry

// Entry of a record. Have is empty until it has been set, "set" until
// Ceph has shown the value.
type Entry struct {
	Want string `json:"want"`
	Have string `json:"have,omitempty"`
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// ParseRecord reads the record. A record that cannot be read is an error: without
// it, settings would be forgotten.
func ParseRecord(b []byte) (Record, error) {
	if len(b) == 0 {
		return Record{}, nil
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("reading the record of Ceph settings: %w", err)
	}
	if r == nil {
		r = Record{}
	}
	return r, nil
}

// Bytes is the record to store.
func (r Record) Bytes() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		// A map of strings always encodes.
		panic("encoding the record of Ceph settings: " + err.Error())
	}
	return b
}

// Set sets an option. The record knows of it before.
type Set struct {
	Option Option
	Value  Value
}

// String implements kit.Action.
func (s Set) String() string { return "setting " + s.Option.String() }

// Do sends the command. Ceph quotes a value that it does not take, so what it says of
// one from a Secret goes no further.
func (s Set) Do(ctx context.Context, conf cephconfig.Client) error {
	if !s.Value.FromSecret {
		return conf.Set(ctx, s.Option.Who, s.Option.Name, s.Value.Text.Reveal(), false)
	}
	err := conf.SetSecret(ctx, s.Option.Who, s.Option.Name, s.Value.Text)
	if errno := ceph.Errno(err); errno != 0 {
		return &ceph.Error{Prefix: "config set", Errno: errno}
	}
	return err
}

// isRefusal says that Ceph does not take an option or its value, whenever it is asked.
func isRefusal(err error) bool {
	errno := ceph.Errno(err)
	return errno == syscall.EINVAL || errno == syscall.ENOENT
}

// refusal is a refused option for the user: where it comes from, and what Ceph says
// unless that could quote a secret.
func (s Set) refusal(err error) string {
	from := s.Value.From
	if from == "" {
		from = s.Option.String()
	} else if !strings.Contains(from, s.Option.Name) {
		from += ": " + s.Option.String()
	}
	if s.Value.FromSecret {
		return from + ": Ceph does not take the value in the Secret, or does not know the option"
	}
	var said *ceph.Error
	if errors.As(err, &said) && said.Status != "" {
		return from + ": " + said.Status
	}
	return from + ": " + err.Error()
}

// Remove removes an option.
type Remove struct{ Option Option }

// String implements kit.Action.
func (r Remove) String() string { return "removing " + r.Option.String() }

// Change is what a pass does about the options.
type Change struct {
	Set    []Set
	Remove []Remove
	// Record to store before anything is set, and after what was removed is gone.
	Record Record
	// After is the record to store when all of Set is done; nil if nothing is set. Until
	// then nobody can tell a value that Ceph writes in another way from one that was
	// never set.
	After Record
}

// isSet stands for the hash of what Ceph shows until that has been seen.
const isSet = "set"

// Compare finds what differs. have is Ceph's database, record what was set before.
func Compare(want map[Option]Value, have []cephconfig.Option, record Record) Change {
	shown := map[Option]string{}
	for _, o := range have {
		shown[Option{o.Who(), o.Name}] = o.Value
	}
	c := Change{Record: Record{}}
	for _, o := range slices.SortedFunc(maps.Keys(want), byName) {
		v := want[o].Text.Reveal()
		old, known := record[o.String()]
		now, present := shown[o]
		e := Entry{Want: hash(v), Have: old.Have}
		switch {
		case present && (equal(now, v) || known && old.Want == e.Want && (old.Have == hash(now) || old.Have == isSet)):
			e.Have = hash(now)
		case !present && v == "" && known && old.Want == e.Want && old.Have != "":
			// An empty value may be shown as none.
		default:
			e.Have = ""
			c.Set = append(c.Set, Set{Option: o, Value: want[o]})
		}
		c.Record[o.String()] = e
	}
	for key, e := range record {
		who, n, _ := strings.Cut(key, " ")
		o := Option{who, n}
		if _, still := want[o]; still {
			continue
		}
		if _, present := shown[o]; present {
			c.Remove = append(c.Remove, Remove{Option: o})
			c.Record[key] = e
		}
	}
	if len(c.Set) > 0 {
		c.After = maps.Clone(c.Record)
	}
	for _, set := range c.Set {
		c.After[set.Option.String()] = Entry{Want: c.Record[set.Option.String()].Want, Have: isSet}
	}
	slices.SortFunc(c.Remove, func(a, b Remove) int { return byName(a.Option, b.Option) })
	return c
}

func byName(a, b Option) int { return strings.Compare(a.String(), b.String()) }

// equal compares two values as Ceph would: booleans and numbers by what they mean.
func equal(a, b string) bool {
	if a == b {
		return true
	}
	if x, errX := strconv.ParseBool(a); errX == nil {
		if y, errY := strconv.ParseBool(b); errY == nil {
			return x == y
		}
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}

// Ratio sets one of the full ratios.
type Ratio struct {
	// Name is full, backfillfull or nearfull.
	Name  string
	Value float64
}

// String implements kit.Action.
func (r Ratio) String() string {
	return fmt.Sprintf("setting the %s ratio to %s", r.Name, strconv.FormatFloat(r.Value, 'f', -1, 64))
}

// Default ratios of Ceph, for when the user takes a wish back.
const (
	defaultFull         = 0.95
	defaultBackfillFull = 0.90
	defaultNearFull     = 0.85
)

// ratios finds the ratios that differ, in an order in which they never cross:
// near <= backfill <= full has to hold at every step.
func ratios(s cephv1.StorageScopeSpec, full, backfill, near float64) []Ratio {
	want := [3]float64{orElse(s.FullRatio, defaultFull), orElse(s.BackfillFullRatio, defaultBackfillFull), orElse(s.NearFullRatio, defaultNearFull)}
	steps := []struct {
		name      string
		have, new float64
	}{{"full", full, want[0]}, {"backfillfull", backfill, want[1]}, {"nearfull", near, want[2]}}
	var out []Ratio
	for _, st := range steps { // raising starts at the top
		if st.new-st.have > 1e-6 {
			out = append(out, Ratio{st.name, st.new})
		}
	}
	for _, st := range slices.Backward(steps) { // lowering at the bottom
		if st.have-st.new > 1e-6 {
			out = append(out, Ratio{st.name, st.new})
		}
	}
	return out
}

func orElse(f *float64, otherwise float64) float64 {
	if f == nil {
		return otherwise
	}
	return *f
}
