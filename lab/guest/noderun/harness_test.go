// Package noderun_test runs castellan-node in a storage guest with the requests that the
// operator's Jobs give it, on real LVM, dm-crypt and Ceph: preparing disks, activating
// OSDs, replacing a disk. Each test boots a guest of its own, is run by its name, one at a
// time, and says how long each phase took (PHASE). A guest has one processor, on which a
// start of the ceph program takes 5 to 10 s: what asks Ceph for the test itself runs beside
// it (outside).
//
//	TestNeverStarted       shared database, plain and encrypted; mkfs fails once, slot given up
//	TestOwnDatabaseDevice  mkfs fails and its rollback takes the volume group
//	TestSharedDB           plain and encrypted: siblings up; bad disk, open mapping, failing mkfs, kill
//	TestMetadataLost       two OSDs get databases on a new device
//	TestSeveralPerDevice   a disk with two OSDs is replaced, plain and encrypted
//	TestLayouts            encrypted without a database; an OSD on a volume of the user's
package noderun_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/lab/guest"
	"github.com/castellan-storage/castellan/lab/guest/agent"
	"github.com/castellan-storage/castellan/lab/guest/ceph"
	"github.com/castellan-storage/castellan/lab/guest/guesttest"
)

const (
	// envBin says where castellan-node is; without it, it is built.
	envBin = "CASTELLAN_BIN"
	// envVerbose prints what castellan-node says also when all is well.
	envVerbose = "CASTELLAN_TEST_VERBOSE"
	// envServe makes this program the API server of a guest: the directory with its
	// certificate, in which it keeps the ConfigMap.
	envServe = "CASTELLAN_TEST_SERVE"
	apiPort  = "6443"
	nodeBin  = "/run/castellan/castellan-node"
	// accounts is where Kubernetes mounts a pod's identity.
	accounts = "/var/run/secrets/kubernetes.io/serviceaccount/"
	bootRing = "/var/lib/ceph/bootstrap-osd/ceph.keyring"
)

// patience bounds waiting for Ceph. A guest has one processor, and shares that.
const patience = 10 * time.Minute

func TestMain(m *testing.M) {
	if dir := os.Getenv(envServe); dir != "" {
		if err := serve(dir, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if env := os.Getenv(envOutside); env != "" {
		fmt.Fprintln(os.Stderr, runOutside(env, os.Args[1:]))
		os.Exit(127)
	}
	os.Exit(m.Run())
}

// serve is as much of an API server as castellan-node needs: server-side apply of one
// ConfigMap, whose data is kept in a file.
func serve(dir, address string) error {
	var mu sync.Mutex
	owned := map[string]map[string]string{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var cm struct {
			Data map[string]string `json:"data"`
		}
		if err := json.NewDecoder(r.Body).Decode(&cm); err != nil || r.Method != http.MethodPatch || r.Header.Get("Authorization") != "Bearer token" {
			http.Error(w, fmt.Sprintf("%s: %v", r.Method, err), http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		manager := r.URL.Query().Get("fieldManager")
		for other, data := range owned {
			for k, v := range cm.Data {
				if other != manager && data[k] != v {
					delete(data, k) // taken by force
				}
			}
		}
		owned[manager] = cm.Data
		all := map[string]string{}
		for _, data := range owned {
			for k, v := range data {
				all[k] = v
			}
		}
		b, err := json.Marshal(map[string]any{"data": all})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "map.json.new"), b, 0o600)
		}
		if err == nil {
			err = os.Rename(filepath.Join(dir, "map.json.new"), filepath.Join(dir, "map.json"))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(b)
	})
	s := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: time.Minute}
	return s.ListenAndServeTLS(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
}

// node is a guest with Ceph in which castellan-node runs like in a pod.
type node struct {
	t       *testing.T
	g       *guest.Guest
	c       *ceph.Cluster
	out     outside
	dir     string // with the API server's files, and what ceph and rados read and write
	monHost string
	began   time.Time
}

// phase notes how long it is since the last phase ended.
func (n *node) phase(name string) {
	now := time.Now()
	n.t.Logf("PHASE %s %.1fs", name, now.Sub(n.began).Seconds())
	n.began = now
}

// start boots a guest with disks of 10 GiB and starts Ceph in it.
func start(t *testing.T, name string, disks int) *node {
	t.Helper()
	o := guesttest.Options(t, guest.Options{Name: name, FastLUKS: true})
	bin := binary(t)
	for i := range disks {
		o.Disks = append(o.Disks, guest.DiskOptions{Size: 10 * guesttest.GiB, Serial: fmt.Sprintf("DISK%d", i+1), Slot: i + 1})
	}
	n := &node{t: t, dir: t.TempDir(), began: time.Now()}
	n.g = guesttest.Start(t, o)
	n.out = outside{Guest: n.g, rootfs: o.Rootfs, dir: n.dir}
	n.put(nodeBin, bin, 0o755)
	n.api()
	c, err := ceph.Bootstrap(t.Context(), n.out, func(string, time.Duration) {})
	if err != nil {
		t.Fatal(err)
	}
	n.c = c
	ip := n.g.Address().Addr()
	n.monHost = fmt.Sprintf("[v2:%s:3300,v1:%s:6789]", ip, ip)
	// What a pod has of the cluster's configuration is the override alone.
	var conf bytes.Buffer
	n.ok(n.g.Get(t.Context(), "/etc/ceph/ceph.conf", &conf))
	n.put("/etc/castellan/override/ceph.conf", conf.Bytes(), 0o644)
	n.phase("guest, mon and mgr")
	return n
}

func (n *node) ok(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) put(path string, b []byte, perm os.FileMode) {
	n.t.Helper()
	guesttest.Must(n.t, n.g, "mkdir", "-p", filepath.Dir(path))
	n.ok(n.g.Put(n.t.Context(), path, perm, bytes.NewReader(b)))
}

// binary is castellan-node, static as in its pods.
func binary(t *testing.T) []byte {
	t.Helper()
	path := ""
	if dir := os.Getenv(envBin); dir != "" {
		path = filepath.Join(dir, "castellan-node")
	} else {
		path = filepath.Join(t.TempDir(), "castellan-node")
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/castellan-node")
		cmd.Dir, cmd.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building castellan-node: %v\n%s", err, out)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// api starts the API server on the guest's network, and gives the guest a pod's
// identity.
func (n *node) api() {
	n.t.Helper()
	ip := n.g.Gateway()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	n.ok(err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{ip.AsSlice()}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	n.ok(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	n.ok(err)
	pemCert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	n.ok(os.WriteFile(filepath.Join(n.dir, "cert.pem"), pemCert, 0o600))
	n.ok(os.WriteFile(filepath.Join(n.dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	n.put(accounts+"ca.crt", pemCert, 0o600)
	n.put(accounts+"token", []byte("token"), 0o600)
	self, err := os.Executable()
	n.ok(err)
	cmd := exec.Command(self, net.JoinHostPort(ip.String(), apiPort))
	cmd.Env = append(os.Environ(), envServe+"="+n.dir)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	n.ok(n.g.StartBeside(cmd))
	n.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pemCert)
	n.poll("the API server", 30*time.Second, func() error {
		conn, err := n.g.Dial(n.t.Context(), "tcp", net.JoinHostPort(ip.String(), apiPort))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		return tls.Client(conn, &tls.Config{RootCAs: pool, ServerName: ip.String(), MinVersion: tls.VersionTLS12}).HandshakeContext(n.t.Context())
	})
}

func (n *node) poll(what string, limit time.Duration, f func() error) {
	n.t.Helper()
	end := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("waiting for %s: %v", what, err)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// run runs castellan-node with a request, in a mount namespace of its own as in a pod,
// and returns its output and whether it ended with 0.
func (n *node) run(command string, req map[string]any) (string, bool) {
	n.t.Helper()
	return n.runCtx(n.t.Context(), command, req)
}

func (n *node) runCtx(ctx context.Context, command string, req map[string]any) (string, bool) {
	n.t.Helper()
	b, err := json.Marshal(req)
	n.ok(err)
	var out, errOut bytes.Buffer
	began := time.Now()
	exit, err := n.g.Run(ctx, agent.Command{
		Argv: []string{"unshare", "--mount", "--propagation", "private", nodeBin, command},
		Env: []string{
			"CASTELLAN_REQUEST=" + string(b), "KUBERNETES_SERVICE_HOST=" + n.g.Gateway().String(), "KUBERNETES_SERVICE_PORT=" + apiPort,
		},
		Stdout: &out, Stderr: &errOut,
	})
	if ctx.Err() != nil {
		return "", false
	}
	n.ok(err)
	n.t.Logf("MEASURED castellan-node %s %.1fs exit %d", command, time.Since(began).Seconds(), exit.Code)
	last := strings.Split(strings.TrimSpace(errOut.String()), "\n")
	if exit.Code != 0 {
		n.t.Logf("%s: %s", command, last[len(last)-1])
	}
	if os.Getenv(envVerbose) != "" {
		n.t.Logf("%s\n%s\n%s", command, out.String(), errOut.String())
	}
	return out.String() + errOut.String(), exit.Code == 0
}

// must is run that has to succeed.
func (n *node) must(command string, req map[string]any) string {
	n.t.Helper()
	out, ok := n.run(command, req)
	if !ok {
		n.t.Fatalf("castellan-node %s failed:\n%s", command, out)
	}
	return out
}

// stored reads a key of the ConfigMap.
func (n *node) stored(key string, into any) {
	n.t.Helper()
	b, err := os.ReadFile(filepath.Join(n.dir, "map.json"))
	n.ok(err)
	var cm struct {
		Data map[string]string `json:"data"`
	}
	n.ok(json.Unmarshal(b, &cm))
	n.ok(json.Unmarshal([]byte(cm.Data[key]), into))
}

// part and osd are what the node reports.
type part struct {
	Path, ByID, ByPath, Serial, WWN, VG, LV, LVUUID string
	Size                                            uint64
	Rotational                                      bool
}

type osd struct {
	ID        int
	UUID      string
	Mode      string
	Encrypted bool
	Data      part
	DB, WAL   *part
}

// osds are those of the last report.
func (n *node) osds() []osd {
	n.t.Helper()
	var list []osd
	n.stored("osds", &list)
	slices.SortFunc(list, func(a, b osd) int { return a.ID - b.ID })
	return list
}

func (n *node) osd(id int) osd {
	n.t.Helper()
	list := n.osds()
	i := slices.IndexFunc(list, func(o osd) bool { return o.ID == id })
	if i < 0 {
		n.t.Fatalf("osd.%d is not in the report: %+v", id, list)
	}
	return list[i]
}

// base are the fields of requests that report.
func (n *node) base(more map[string]any) map[string]any {
	req := map[string]any{"namespace": "ns", "node": "n", "configMap": "rook-ceph-osd-n-status", "fsid": n.c.FSID, "monHost": n.monHost}
	for k, v := range more {
		req[k] = v
	}
	return req
}

// provision asks for OSDs on named disks with one configuration.
func (n *node) provision(disks []string, config map[string]any, pending ...map[string]any) []osd {
	n.t.Helper()
	var named []map[string]any
	for _, d := range disks {
		named = append(named, map[string]any{"ref": d, "config": config})
	}
	return n.provisionNamed(named, pending...)
}

// provisionNamed asks for OSDs on disks with a configuration each.
func (n *node) provisionNamed(named []map[string]any, pending ...map[string]any) []osd {
	n.t.Helper()
	req := n.base(map[string]any{"selection": map[string]any{"named": named}})
	if len(pending) > 0 {
		req["pending"] = pending
	}
	n.must("provision", req)
	return n.osds()
}

// up activates OSDs, starts their daemons and waits until they are up. None is started
// before all are activated: a guest has one processor.
func (n *node) up(osds ...osd) {
	n.t.Helper()
	var ids []int
	for _, o := range osds {
		n.must("activate", map[string]any{"id": o.ID, "uuid": o.UUID, "fsid": n.c.FSID, "monHost": n.monHost, "mode": o.Mode})
	}
	for _, o := range osds {
		guesttest.Must(n.t, n.g, "ceph-osd", "-i", strconv.Itoa(o.ID), "--setuser", "ceph", "--setgroup", "ceph")
		ids = append(ids, o.ID)
	}
	n.wait(func(ctx context.Context) error { return n.c.WaitUp(ctx, ids...) })
}

func (n *node) wait(f func(ctx context.Context) error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	n.ok(f(ctx))
}

// lv is the request's form of a volume.
func (p *part) lv() map[string]any {
	return map[string]any{"vg": p.VG, "name": p.LV, "uuid": p.LVUUID, "size": p.Size}
}

func lvs(o osd) []map[string]any {
	var all []map[string]any
	for _, p := range []*part{&o.Data, o.DB, o.WAL} {
		if p != nil && p.VG != "" {
			all = append(all, p.lv())
		}
	}
	return all
}

// destroy does what the operator does up to ready-for-swap, and returns the slot that
// waits for a disk.
func (n *node) destroy(o osd, before []string) map[string]any {
	n.t.Helper()
	id := strconv.Itoa(o.ID)
	ctx := n.t.Context()
	_, err := n.c.Ceph(ctx, "osd", "out", id)
	n.ok(err)
	n.poll("osd."+id+" to be safe to destroy", patience, func() error {
		var safe struct {
			Safe []int `json:"safe_to_destroy"`
		}
		if err := n.c.JSON(ctx, &safe, "osd", "safe-to-destroy", id); err != nil {
			return err
		}
		if !slices.Contains(safe.Safe, o.ID) {
			return errors.New("not yet")
		}
		return nil
	})
	n.ok(n.c.StopOSD(ctx, o.ID, false))
	if o.Encrypted {
		n.must("close", map[string]any{"osd": o.ID, "uuid": o.UUID, "lvs": lvs(o)})
	}
	n.redestroy(o.ID)
	return map[string]any{
		"osd": o.ID, "uuid": o.UUID, "dbLV": o.DB != nil, "before": before,
		"old": map[string]any{"serial": o.Data.Serial, "byPath": o.Data.ByPath, "byID": o.Data.ByID, "size": 10 * guesttest.GiB, "rotational": o.Data.Rotational},
	}
}

// redestroy destroys the id again, as after an attempt that was cut off.
func (n *node) redestroy(id int) {
	n.t.Helper()
	ctx := n.t.Context()
	n.poll(fmt.Sprintf("osd.%d to be destroyed", id), patience, func() error {
		_, err := n.c.Ceph(ctx, "osd", "destroy", fmt.Sprintf("osd.%d", id), "--yes-i-really-mean-it")
		return err
	})
}

// replaced is the node's answer.
type replaced struct {
	OSD                                         int
	UUID, Result, Reason, Message, Slot, Serial string
	Remade                                      []string
	Siblings                                    []struct {
		OSD             int
		VG, LV, Changed string
	}
	Warnings []string
	Seconds  map[string]float64
}

// request is what the operator makes of the record of an OSD and of a match.
func (n *node) request(o osd, device, serial string, others []osd) map[string]any {
	req := n.base(map[string]any{
		"osd": o.ID, "oldUUID": o.UUID, "device": device, "serial": serial, "mode": o.Mode, "encrypted": o.Encrypted,
		"deviceClass": "ssd", "minSize": 9 * guesttest.GiB,
	})
	for key, p := range map[string]*part{"db": o.DB, "wal": o.WAL} {
		if p != nil {
			lv := p.lv()
			lv["device"] = p.ByID
			req[key] = lv
		}
	}
	var siblings []map[string]any
	for _, s := range others {
		if s.ID != o.ID && s.DB != nil {
			siblings = append(siblings, map[string]any{"osd": s.ID, "uuid": s.UUID, "lvs": []map[string]any{s.DB.lv()}})
		}
	}
	if len(siblings) > 0 {
		req["siblings"] = siblings
	}
	return req
}

// replace runs the replacement and checks how it ended.
func (n *node) replace(req map[string]any, result, reason string) replaced {
	n.t.Helper()
	out, ok := n.run("replace", req)
	var r replaced
	n.stored("replace", &r)
	n.t.Logf("replace: %+v", r)
	if r.Result != result || r.Reason != reason || ok != (result == "done") {
		n.t.Fatalf("it ended as %q, %q (exit 0: %v), want %q, %q\n%s", r.Result, r.Reason, ok, result, reason, out)
	}
	return r
}

// heads are the beginnings and the tags of volumes, as sha256 and lvs see them. Of an OSD
// that runs only the first 4 KiB stay as they are: what follows is BlueFS's.
func (n *node) heads(size int, osds ...osd) string {
	n.t.Helper()
	all, names := []string{}, []string{}
	for _, o := range osds {
		for _, p := range []*part{&o.Data, o.DB, o.WAL} {
			if p == nil || p.VG == "" {
				continue
			}
			head := guesttest.Must(n.t, n.g, "dd", "if=/dev/"+p.VG+"/"+p.LV, "bs="+strconv.Itoa(size), "count=1", "iflag=direct", "status=none")
			if len(head) != size {
				n.t.Fatalf("%s/%s: %d bytes were read", p.VG, p.LV, len(head))
			}
			names = append(names, p.VG+"/"+p.LV)
			all = append(all, fmt.Sprintf("%s/%s %x", p.VG, p.LV, sha256.Sum256([]byte(head))))
		}
	}
	if len(names) == 0 {
		n.t.Fatal("no volumes to look at")
	}
	all = append(all, guesttest.Must(n.t, n.g, append([]string{"lvs", "--noheadings", "--sort", "lv_name", "-o", "vg_name,lv_name,lv_uuid,lv_size,lv_tags"}, names...)...))
	return strings.Join(all, "\n")
}

// upFrom is the epoch since which each OSD is up: it changes when one was down.
func (n *node) upFrom() map[int]int {
	n.t.Helper()
	var dump struct {
		OSDs []struct {
			OSD    int
			Up     int
			UpFrom int `json:"up_from"`
		}
	}
	n.ok(n.c.JSON(n.t.Context(), &dump, "osd", "dump"))
	all := map[int]int{}
	for _, o := range dump.OSDs {
		if o.Up == 1 {
			all[o.OSD] = o.UpFrom
		}
	}
	return all
}

// write puts data into the cluster, read compares it.
func (n *node) write() {
	n.t.Helper()
	data := make([]byte, 4<<20)
	_, _ = rand.Read(data) // never fails: crypto/rand ends the program instead
	n.ok(os.WriteFile(filepath.Join(n.dir, "data"), data, 0o600))
	for i := range 4 {
		n.rados("put", fmt.Sprintf("obj%d", i), "/mnt/data")
	}
}

func (n *node) read() {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.dir, "data"))
	n.ok(err)
	for i := range 4 {
		n.rados("get", fmt.Sprintf("obj%d", i), "/mnt/back")
		back, err := os.ReadFile(filepath.Join(n.dir, "back"))
		n.ok(err)
		if !bytes.Equal(data, back) {
			n.t.Errorf("obj%d is not what was written: %d bytes of %d", i, len(back), len(data))
		}
	}
}

func (n *node) rados(args ...string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	res, err := n.out.Exec(ctx, append([]string{"rados", "-p", "rbd"}, args...)...)
	if err != nil || res.ExitCode != 0 {
		n.t.Fatalf("rados %v: exit code %d, %v\n%s", args, res.ExitCode, err, res.Stderr)
	}
}

// pool makes PGs.
func (n *node) pool() {
	n.t.Helper()
	n.ok(n.c.CreatePool(n.t.Context(), "rbd", "rbd"))
	n.wait(n.c.WaitClean)
}

// background runs a program in the guest until stop is called.
func (n *node) background(argv ...string) (stop func()) {
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = n.g.Run(ctx, agent.Command{Argv: argv, Stdout: io.Discard, Stderr: io.Discard})
	}()
	return func() { cancel(); <-done }
}

// abandon does what the operator does when the user gives up a slot: purge the id, and
// remove the volumes that it had on a shared device. It must not remove others.
func (n *node) abandon(o osd, others ...osd) {
	n.t.Helper()
	_, err := n.c.Ceph(n.t.Context(), "osd", "purge", strconv.Itoa(o.ID), "--yes-i-really-mean-it")
	n.ok(err)
	shared := func(o osd) map[string]any {
		var all []map[string]any
		for _, p := range []*part{o.DB, o.WAL} {
			if p != nil {
				all = append(all, p.lv())
			}
		}
		return map[string]any{"osd": o.ID, "uuid": o.UUID, "lvs": all}
	}
	before := n.volumes()
	for _, other := range others {
		// Another's volumes, claimed for this OSD.
		req := shared(other)
		req["osd"], req["uuid"] = o.ID, o.UUID
		if out, ok := n.run("zap", req); ok || !strings.Contains(out, "left alone") {
			n.t.Errorf("the volumes of osd.%d were not refused: %s", other.ID, out)
		}
	}
	if now := n.volumes(); !slices.Equal(now, before) {
		n.t.Errorf("volumes %v, before %v", now, before)
	}
	n.must("zap", shared(o))
	gone := []string{o.DB.VG + "/" + o.DB.LV}
	if o.WAL != nil {
		gone = append(gone, o.WAL.VG+"/"+o.WAL.LV)
	}
	want := slices.DeleteFunc(before, func(v string) bool { return slices.Contains(gone, v) })
	if now := n.volumes(); !slices.Equal(now, want) {
		n.t.Errorf("after osd.%d was given up there are the volumes %v, want %v", o.ID, now, want)
	}
	n.must("zap", shared(o)) // what is gone is no error
}

// volumes are the names of all volumes.
func (n *node) volumes() []string {
	n.t.Helper()
	names := strings.Fields(guesttest.Must(n.t, n.g, "lvs", "--noheadings", "--separator", "/", "--options", "vg_name,lv_name"))
	slices.Sort(names)
	return names
}

// restart ends with what a restart of the machine leaves of OSDs: no daemon, no mapping,
// no active volume, no directory.
func (n *node) restart(osds ...osd) {
	n.t.Helper()
	for _, o := range osds {
		n.ok(n.c.StopOSD(n.t.Context(), o.ID, false))
	}
	for _, o := range osds {
		n.reboot(o)
		guesttest.Must(n.t, n.g, "rm", "-rf", fmt.Sprintf("/var/lib/ceph/osd/ceph-%d", o.ID))
	}
}

// likeCephVolume compares the OSDs on volumes, as the node has reported them, with
// ceph-volume's listing.
func (n *node) likeCephVolume() {
	n.t.Helper()
	var doc map[string][]struct {
		LV   string `json:"lv_name"`
		VG   string `json:"vg_name"`
		UUID string `json:"lv_uuid"`
		Size string `json:"lv_size"`
		Type string
		Tags map[string]string
	}
	list := guesttest.Must(n.t, n.g, "ceph-volume", "lvm", "list", "--format", "json")
	n.ok(json.Unmarshal([]byte(list), &doc))
	if os.Getenv(envVerbose) != "" {
		// What the parsers' testdata is made of.
		n.t.Logf("CAPTURED lvs\n%s", guesttest.Must(n.t, n.g, "lvs", "--reportformat", "json", "--units", "b", "--nosuffix", "--options", "vg_name,lv_name,lv_uuid,lv_size,lv_tags,lv_path,devices"))
		n.t.Logf("CAPTURED lvm list\n%s", list)
	}
	theirs, ours := map[string]bool{}, map[string]bool{}
	for id, parts := range doc {
		for _, p := range parts {
			theirs[strings.Join([]string{id, p.Tags["ceph.osd_fsid"], p.Type, p.VG, p.LV, p.UUID, p.Size, p.Tags["ceph.encrypted"]}, " ")] = true
		}
	}
	for _, o := range n.osds() {
		if o.Mode != "lvm" {
			continue
		}
		for kind, p := range map[string]*part{"block": &o.Data, "db": o.DB, "wal": o.WAL} {
			if p != nil {
				encrypted := map[bool]string{true: "1", false: "0"}[o.Encrypted]
				ours[strings.Join([]string{strconv.Itoa(o.ID), o.UUID, kind, p.VG, p.LV, p.LVUUID, strconv.FormatUint(p.Size, 10), encrypted}, " ")] = true
			}
		}
	}
	if !maps.Equal(theirs, ours) {
		n.t.Errorf("reported are %v, ceph-volume lists %v", ours, theirs)
	}
}
