package clusterconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// member is one key of a JSON object, in the order in which it stands there.
type member struct {
	key string
	raw json.RawMessage
}

// members reads a JSON object and keeps its order. ok is false if raw is valid
// JSON but no object.
func members(raw json.RawMessage) (list []member, ok bool, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	start, err := dec.Token()
	if err != nil {
		return nil, false, fmt.Errorf("reading a JSON object: %w", err)
	}
	if start != json.Delim('{') {
		return nil, false, nil
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, false, fmt.Errorf("reading a key of a JSON object: %w", err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, false, fmt.Errorf("reading the value of key %v: %w", key, err)
		}
		name, _ := key.(string)
		list = append(list, member{name, value})
	}
	return list, true, nil
}

// object writes members as a JSON object.
func object(list []member) (json.RawMessage, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(m.key)
		if err != nil {
			return nil, fmt.Errorf("encoding a key: %w", err)
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(m.raw)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// keys is a tree of the keys that this package writes. Keys outside of it belong
// to others. A nil child is a value that is written as a whole.
type keys map[string]keys

// find looks for a key as drivers do: in any case of letters.
func (k keys) find(name string) (keys, bool) {
	for key, children := range k {
		if strings.EqualFold(key, name) {
			return children, true
		}
	}
	return nil, false
}

// managed gives the keys of a Record.
func managed() keys {
	return keys{
		"clusterID": nil, "monitors": nil,
		"cephFS": {"subvolumeGroup": nil, "kernelMountOptions": nil, "fuseMountOptions": nil,
			"radosNamespace": nil, "controllerPublishSecretRef": nil},
		"rbd": {"radosNamespace": nil, "mirrorCount": nil, "mirrorDaemonCount": nil,
			"controllerPublishSecretRef": nil, "nodePublishSecretRef": nil},
		"nfs":          {},
		"nvmeof":       {"radosNamespace": nil, "controllerPublishSecretRef": nil},
		"readAffinity": {"enabled": nil, "crushLocationLabels": nil},
		"replicationDestination": {"remoteClusterID": nil,
			"rbd": {"remotePoolMapping": nil}},
	}
}

// merge gives fresh with the keys of old that are nobody's in ours, behind its own
// and in their order.
func merge(old, fresh json.RawMessage, ours keys) (json.RawMessage, error) {
	before, ok, err := members(old)
	if err != nil {
		return nil, err
	}
	now, isObject, err := members(fresh)
	if err != nil {
		return nil, err
	}
	if !ok || !isObject {
		return fresh, nil
	}
	at := make(map[string]int, len(now))
	for i, m := range now {
		at[strings.ToLower(m.key)] = i
	}
	for _, m := range before {
		i, present := at[strings.ToLower(m.key)]
		children, known := ours.find(m.key)
		switch {
		case present && children != nil:
			if now[i].raw, err = merge(m.raw, now[i].raw, children); err != nil {
				return nil, err
			}
		case !present && !known:
			at[strings.ToLower(m.key)] = len(now)
			now = append(now, m)
		}
	}
	return object(now)
}
