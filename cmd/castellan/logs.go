package main

import (
	"io"
	"log/slog"

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
	log := logr.FromSlogHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.LevelKey {
				a.Value = slog.StringValue(levelName(a.Value))
			}
			return a
		},
	}))
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
