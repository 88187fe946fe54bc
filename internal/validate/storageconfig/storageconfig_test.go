package storageconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/validate"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		title  string
		config map[string]string
		want   Settings
		keys   []string // of the problems
		words  string   // in the first problem
	}{
		{title: "nothing"},
		{
			title: "everything",
			config: map[string]string{
				"databaseSizeMB": "65536", "walSizeMB": "1024", "osdsPerDevice": "2", "encryptedDevice": "true",
				"metadataDevice": "/dev/disk/by-id/nvme-x:1", "deviceClass": "fast-1", "initialWeight": "1.5",
				"primaryAffinity": "0", "crushRoot": "default~ssd", "storeType": "bluestore-rdr",
			},
			want: Settings{
				DatabaseSizeMB: 65536, WalSizeMB: 1024, OSDsPerDevice: 2, EncryptedDevice: true,
				MetadataDevice: "/dev/disk/by-id/nvme-x:1", DeviceClass: "fast-1", InitialWeight: new(1.5),
				PrimaryAffinity: new(0.0), CrushRoot: "default~ssd", StoreType: "bluestore-rdr",
			},
		},
		{title: "empty values are unset", config: map[string]string{"deviceClass": "", "databaseSizeMB": " ", "encryptedDevice": ""}},
		{title: "blanks around a value", config: map[string]string{"osdsPerDevice": " 3\n"}, want: Settings{OSDsPerDevice: 3}},
		{title: "zero sizes are unset", config: map[string]string{"databaseSizeMB": "0", "walSizeMB": "0"}},
		{title: "a database too small", config: map[string]string{"databaseSizeMB": "1023"}, keys: []string{"databaseSizeMB"}, words: "1023 is not between 1024"},
		{title: "the smallest database", config: map[string]string{"databaseSizeMB": "1024"}, want: Settings{DatabaseSizeMB: 1024}},
		{title: "a size with a unit", config: map[string]string{"databaseSizeMB": "64Gi"}, keys: []string{"databaseSizeMB"}, words: "not a whole number"},
		{title: "a size beyond any disk", config: map[string]string{"walSizeMB": "99999999999"}, keys: []string{"walSizeMB"}, words: "is not between"},
		{title: "a negative size", config: map[string]string{"walSizeMB": "-1"}, keys: []string{"walSizeMB"}},
		{title: "no OSD per device", config: map[string]string{"osdsPerDevice": "0"}, keys: []string{"osdsPerDevice"}},
		{title: "half an OSD", config: map[string]string{"osdsPerDevice": "1.5"}, keys: []string{"osdsPerDevice"}},
		{title: "yes is not true", config: map[string]string{"encryptedDevice": "yes"}, keys: []string{"encryptedDevice"}, words: "write true or false"},
		{title: "True is not true", config: map[string]string{"encryptedDevice": "True"}, keys: []string{"encryptedDevice"}},
		{title: "a class like a flag", config: map[string]string{"deviceClass": "--force"}, keys: []string{"deviceClass"}},
		{title: "a class with a command", config: map[string]string{"deviceClass": "ssd;reboot"}, keys: []string{"deviceClass"}},
		{title: "a weight that is none", config: map[string]string{"initialWeight": "NaN"}, keys: []string{"initialWeight"}, words: "not a number"},
		{title: "a negative weight", config: map[string]string{"initialWeight": "-1"}, keys: []string{"initialWeight"}},
		{title: "too much affinity", config: map[string]string{"primaryAffinity": "1.01"}, keys: []string{"primaryAffinity"}},
		{title: "filestore is gone", config: map[string]string{"storeType": "filestore"}, keys: []string{"storeType"}, words: "write bluestore"},
		{title: "a metadata device by name", config: map[string]string{"metadataDevice": "nvme0n1"}, want: Settings{MetadataDevice: "nvme0n1"}},
		{title: "a metadata device on a volume", config: map[string]string{"metadataDevice": "/dev/vg-1/lv.1"}, want: Settings{MetadataDevice: "/dev/vg-1/lv.1"}},
		{title: "a metadata device elsewhere", config: map[string]string{"metadataDevice": "/etc/passwd"}, keys: []string{"metadataDevice"}, words: "not under /dev"},
		{title: "a metadata device upwards", config: map[string]string{"metadataDevice": "/dev/../etc/passwd"}, keys: []string{"metadataDevice"}},
		{title: "a metadata device without name", config: map[string]string{"metadataDevice": "/dev/"}, keys: []string{"metadataDevice"}, words: "empty part"},
		{title: "a metadata device with a command", config: map[string]string{"metadataDevice": "/dev/sdb$(id)"}, keys: []string{"metadataDevice"}},
		{title: "a key in the wrong case", config: map[string]string{"databaseSizeMb": "2048"}, keys: []string{"databaseSizeMb"}, words: "did you mean databaseSizeMB?"},
		{title: "a key of another world", config: map[string]string{"journalSize": "2048"}, keys: []string{"journalSize"}, words: "known are crushRoot, databaseSizeMB"},
		{
			title:  "one wrong value spoils no other",
			config: map[string]string{"osdsPerDevice": "many", "deviceClass": "ssd", "colour": "red"},
			want:   Settings{DeviceClass: "ssd"},
			keys:   []string{"colour", "osdsPerDevice"},
		},
	} {
		t.Run(tc.title, func(t *testing.T) {
			got, problems := Parse(tc.config)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			var keys []string
			for _, p := range problems {
				keys = append(keys, p.Key)
				if p.Problem == "" || p.Hint == "" {
					t.Errorf("%s: a problem without words: %+v", p.Key, p)
				}
			}
			if diff := cmp.Diff(tc.keys, keys); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if tc.words != "" && !strings.Contains(validate.Join(problems), tc.words) {
				t.Errorf("want %q in %q", tc.words, validate.Join(problems))
			}
			if diff := cmp.Diff(problems, Check(tc.config)); diff != "" {
				t.Errorf("Check differs from Parse:\n%s", diff)
			}
		})
	}
}
