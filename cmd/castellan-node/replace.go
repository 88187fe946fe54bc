package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/internal/node/crypt"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/rawosd"
	"github.com/castellan-storage/castellan/internal/node/renew"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/run"
	"github.com/castellan-storage/castellan/internal/node/statusmap"
	"github.com/castellan-storage/castellan/internal/node/watch"
	"github.com/castellan-storage/castellan/internal/node/zap"
)

const (
	// lookEvery is how often disks are looked at without a word of the kernel.
	// It is a few small files for each disk, and what a swap is noticed by where the kernel's
	// events do not reach a pod.
	lookEvery = time.Second
	// toolTimeout bounds cryptsetup and LVM: on a dead disk they can hang in the kernel.
	toolTimeout = time.Minute
)

// lastWord leaves why a command failed where the Job's owner reads it.
func lastWord(err error) error {
	if err == nil {
		return nil
	}
	msg := err.Error()
	if len(msg) > maxTermination {
		msg = msg[:maxTermination]
	}
	if werr := os.WriteFile(terminationLog, []byte(msg), 0o644); werr != nil && !errors.Is(werr, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("writing the termination message: %w", werr))
	}
	return err
}

// closeCmd closes what is left open of a stopped encrypted OSD.
func closeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "close", Short: "Close the dm-crypt mappings of an OSD's volumes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var req request.Close
			if err := request.Decode(os.Getenv(request.Env), &req); err != nil {
				return err
			}
			return lastWord(closeMappings(cmd.Context(), req))
		},
	}
}

func closeMappings(ctx context.Context, req request.Close) error {
	closed, err := cryptHost().Close(ctx, req.LVs)
	if err != nil {
		return fmt.Errorf("osd.%d: %w", req.OSD, err)
	}
	fmt.Printf("osd.%d: closed %d mappings [%s]; none of its %d volumes is mapped\n", req.OSD, len(closed), strings.Join(closed, " "), len(req.LVs))
	return nil
}

func cryptHost() crypt.Host {
	return crypt.Host{Root: "/", Run: run.Exec{Log: os.Stderr, Env: volumeEnv(true), Timeout: toolTimeout}}
}

// replaceCmd makes a destroyed OSD anew on another disk.
func replaceCmd() *cobra.Command {
	return &cobra.Command{
		Use: "replace", Short: "Make a destroyed OSD anew, under its id, on another disk", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var req request.Replace
			if err := request.Decode(os.Getenv(request.Env), &req); err != nil {
				return err
			}
			return lastWord(replaceOSD(cmd.Context(), req))
		},
	}
}

func replaceOSD(ctx context.Context, req request.Replace) error {
	if err := makeReady(req.FSID, req.MonHost); err != nil {
		return err
	}
	client, err := statusmap.InCluster()
	if err != nil {
		return err
	}
	runner := run.Exec{Log: os.Stderr, Env: volumeEnv(req.AllowLoop)}
	uid, gid, err := cephUser()
	if err != nil {
		return err
	}
	node := renew.Host{
		Root: "/", Node: inspect.Node{Root: "/", Run: runner}, Host: cryptHost(),
		Raw:  &rawosd.Maker{Run: runner, Root: "/", FSID: req.FSID, UID: uid, GID: gid},
		Keys: runner,
	}
	out, err := renew.Run(ctx, node, runner, req, time.Now)
	out.Attempt = req.Attempt
	if b, jerr := json.MarshalIndent(out.Replaced, "", " "); jerr == nil {
		fmt.Println(string(b))
	}
	// The answer is stored also when the Job is being ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), toolTimeout)
	defer cancel()
	target := statusmap.Target{Namespace: req.Namespace, Name: req.ConfigMap, Node: req.Node, Labels: req.Labels}
	return errors.Join(err, client.StoreReplaced(ctx, target, out.Replaced, out.OSDs))
}

// zapCmd removes the volumes of a purged OSD.
func zapCmd() *cobra.Command {
	return &cobra.Command{
		Use: "zap", Short: "Remove the volumes that a purged OSD has left on a shared device", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var req request.Zap
			if err := request.Decode(os.Getenv(request.Env), &req); err != nil {
				return err
			}
			if err := writeLVMConf(); err != nil {
				return lastWord(err)
			}
			h := cryptHost()
			return lastWord(zap.Run(cmd.Context(), h, h.Run, req))
		},
	}
}

// watchCmd ends when the node's disks are not what was reported.
func watchCmd() *cobra.Command {
	return &cobra.Command{
		Use: "watch", Short: "Wait until this node's disks differ from what was reported", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var req request.Watch
			if err := request.Decode(os.Getenv(request.Env), &req); err != nil {
				return err
			}
			events, err := watch.Events(cmd.Context())
			if err != nil {
				fmt.Fprintf(os.Stderr, "castellan-node: %v; looking every %v instead\n", err, lookEvery)
			}
			tick := time.NewTicker(lookEvery)
			defer tick.Stop()
			what, err := watch.Host{Root: "/"}.Wait(cmd.Context(), req.Known, events, tick.C)
			if err != nil {
				return lastWord(err)
			}
			if what == "" {
				what = "told to end"
			}
			fmt.Println(what)
			return nil
		},
	}
}
