package sim

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// counting counts the writes of the world itself.
type counting struct {
	client.Client
	n atomic.Int64
}

// Create implements client.Writer.
func (c *counting) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	c.n.Add(1)
	return c.Client.Create(ctx, o, opts...)
}

// Delete implements client.Writer.
func (c *counting) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	c.n.Add(1)
	return c.Client.Delete(ctx, o, opts...)
}

// Update implements client.Writer.
func (c *counting) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	c.n.Add(1)
	return c.Client.Update(ctx, o, opts...)
}

// Apply implements client.Writer.
func (c *counting) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	c.n.Add(1)
	return c.Client.Apply(ctx, o, opts...)
}

// Status implements client.Client.
func (c *counting) Status() client.SubResourceWriter { return countingStatus{c.Client.Status(), c} }

type countingStatus struct {
	client.SubResourceWriter
	c *counting
}

// Update implements client.SubResourceWriter.
func (s countingStatus) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	s.c.n.Add(1)
	return s.SubResourceWriter.Update(ctx, o, opts...)
}
