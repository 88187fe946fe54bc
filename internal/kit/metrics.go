package kit

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of all controllers of a process. A nil *Metrics counts nothing.
type Metrics struct {
	passes  *prometheus.CounterVec
	step    *prometheus.HistogramVec
	effects *prometheus.CounterVec
	waits   *prometheus.CounterVec
	waiting *prometheus.CounterVec
}

// NewMetrics makes the metrics and registers them. Metrics that are registered
// there already are shared.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "castellan_passes_total",
			Help: "Passes of a controller by how they ended: done, wait, terminal, error, panic.",
		}, []string{"controller", "end"}),
		step: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "castellan_pass_step_seconds",
			Help:    "Duration of the steps of a pass: observe, plan, act, report.",
			Buckets: []float64{.0005, .002, .01, .05, .2, 1, 5, 30, 120},
		}, []string{"controller", "step"}),
		effects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "castellan_effects_total",
			Help: "Changes made outside the process, by kind and result (ok, error).",
		}, []string{"controller", "kind", "result"}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "castellan_waits_total",
			Help: "Passes that ended waiting, by reason.",
		}, []string{"controller", "reason"}),
		waiting: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "castellan_blocked_seconds_total",
			Help: "Seconds for which a controller asked to wait, by reason, summed over its keys.",
		}, []string{"controller", "reason"}),
	}
	var err error
	m.passes, err = shared(reg, m.passes, err)
	m.step, err = shared(reg, m.step, err)
	m.effects, err = shared(reg, m.effects, err)
	m.waits, err = shared(reg, m.waits, err)
	m.waiting, err = shared(reg, m.waiting, err)
	if err != nil {
		return nil, fmt.Errorf("registering metrics of the controllers: %w", err)
	}
	return m, nil
}

// shared registers c, or gives the collector that is there under its name.
func shared[C prometheus.Collector](reg prometheus.Registerer, c C, before error) (C, error) {
	err := reg.Register(c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if same, ok := already.ExistingCollector.(C); ok {
			return same, before
		}
	}
	return c, errors.Join(before, err)
}

func (m *Metrics) pass(controller, end string) {
	if m != nil {
		m.passes.WithLabelValues(controller, end).Inc()
	}
}

func (m *Metrics) took(controller, step string, d time.Duration) {
	if m != nil {
		m.step.WithLabelValues(controller, step).Observe(d.Seconds())
	}
}

func (m *Metrics) effect(controller, kind string, err error) {
	if m == nil {
		return
	}
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.effects.WithLabelValues(controller, kind, result).Inc()
}

func (m *Metrics) wait(controller, reason string, d time.Duration) {
	if m != nil {
		m.waits.WithLabelValues(controller, reason).Inc()
		m.waiting.WithLabelValues(controller, reason).Add(d.Seconds())
	}
}
