package label

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// encode writes a label as BlueStore does.
func encode(uuid, description string, size uint64, meta [][2]string) []byte {
	str := func(b []byte, s string) []byte {
		return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	body := make([]byte, 16)
	body = binary.LittleEndian.AppendUint64(body, size)
	body = binary.LittleEndian.AppendUint32(body, 1790000000)
	body = binary.LittleEndian.AppendUint32(body, 5)
	body = str(body, description)
	body = binary.LittleEndian.AppendUint32(body, uint32(len(meta)))
	for _, kv := range meta {
		body = str(str(body, kv[0]), kv[1])
	}
	b := []byte(magic + uuid + "\n")
	b = append(b, 2, 1)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = append(b, body...)
	b = binary.LittleEndian.AppendUint32(b, 0xdeadbeef) // crc
	return append(b, make([]byte, Size-len(b))...)
}

const uuid = "5d358cd6-fd92-46c1-b670-f3fcd440f5b6"

func TestParse(t *testing.T) {
	block := encode(uuid, "main", 6<<30, [][2]string{
		{"ceph_fsid", "f2b79749-5c80-4051-8f99-2b3d36e8fb05"}, {"osd_key", "canary"}, {"ready", "ready"}, {"whoami", "1"},
	})
	got, err := Read(bytes.NewReader(block))
	if err != nil {
		t.Fatal(err)
	}
	want := Label{UUID: uuid, Size: 6 << 30, Made: time.Unix(1790000000, 5).UTC(), Description: "main",
		FSID: "f2b79749-5c80-4051-8f99-2b3d36e8fb05", ID: 1, Ready: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	db, err := Parse(encode(uuid, "bluefs db", 1<<30, nil))
	if err != nil || db.Data() || db.ID != -1 || db.FSID != "" {
		t.Errorf("db label: %+v, %v", db, err)
	}
}

func TestNoLabel(t *testing.T) {
	for name, block := range map[string][]byte{
		"zeros": make([]byte, Size), "empty": nil, "magic only": []byte(magic), "other": bytes.Repeat([]byte("x"), Size),
	} {
		if _, err := Parse(block); !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v, want ErrNone", name, err)
		}
	}
}

func TestABrokenLabelIsNotNoLabel(t *testing.T) {
	whole := encode(uuid, "main", 1, [][2]string{{"whoami", "x"}})
	if _, err := Parse(whole); err == nil || errors.Is(err, ErrNone) {
		t.Errorf("whoami that is no number: %v", err)
	}
	for _, n := range []int{61, 70, 90} {
		if _, err := Parse(whole[:n]); err == nil || errors.Is(err, ErrNone) {
			t.Errorf("label cut off after %d bytes: %v, want an error that is not ErrNone", n, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(encode(uuid, "main", 1, [][2]string{{"whoami", "3"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := Parse(b)
		if err != nil && l != (Label{}) {
			t.Error("an error comes with a label")
		}
	})
}
