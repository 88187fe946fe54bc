package main

import (
	"context"
	"io"
	"log/slog"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Levels of slog for the words of ROOK_LOG_LEVEL. Verbosity n of a logr line is
// level -n of slog: 4 shows what controller-runtime does, 10 all requests.
const (
	levelDebug = slog.Level(-4)
	levelTrace = slog.Level(-10)
)

// levelOf is the level for a word of ROOK_LOG_LEVEL. Lines are either news or
// errors, so the words above INFO show errors only.
func levelOf(word string) slog.Level {
	switch word {
	case "TRACE":
		return levelTrace
	case "DEBUG":
		return levelDebug
	case "WARNING", "ERROR":
		return slog.LevelError
	}
	return slog.LevelInfo
}

// startLogging makes JSON lines the log of everything in this process. JSON also
// means that no name or message can forge a line. The level can change at any
// time.
func startLogging(w io.Writer, level slog.Leveler) logr.Logger {
	log := logr.FromSlogHandler(quiet{slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.LevelKey {
				a.Value = slog.StringValue(levelName(a.Value))
			}
			return a
		},
	})})
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	return log
}

func levelName(v slog.Value) string {
	level, ok := v.Any().(slog.Level)
	switch {
	case !ok:
		return v.String()
	case level < levelDebug:
		return "trace"
	case level < slog.LevelInfo:
		return "debug"
	case level < slog.LevelError:
		return "info"
	}
	return "error"
}

// chatter is what controller-runtime says of its own workings for each controller
// and each watch at every start and stop.
const chatter = "|Starting EventSource|Starting Controller|Starting workers|Shutdown signal received, waiting for all workers to finish|All workers finished|" +
	"Stopping and waiting for non leader election runnables|Stopping and waiting for leader election runnables|Stopping and waiting for warmup runnables|" +
	"Stopping and waiting for caches|Stopping and waiting for webhooks|Stopping and waiting for HTTP servers|Wait completed, proceeding to shutdown the manager|" +
	"healthz check failed|Starting metrics server|starting server|shutting down server|Shutting down metrics server with timeout of 1 minute|" +
	// The lease that was given back on purpose.
	"error received after stop sequence was engaged|"

// quiet makes chatter debug lines.
type quiet struct{ slog.Handler }

// Handle implements slog.Handler.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(chatter, "|"+r.Message+"|") {
		if !q.Enabled(ctx, levelDebug) {
			return nil
		}
		r.Level = levelDebug
	}
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
