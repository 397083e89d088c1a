package main

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/prepare"
)

// firstLook fails only where the operator asked for it and nobody's claim would suffer.
func firstLook(ctx context.Context, cfg *config.Plugin, inv *inventory.Inventory, tx *prepare.Transaction) error {
	err := inv.Refresh(ctx)
	if claims, _ := tx.Counts(); err != nil && cfg.Driver.FailOnInitError != nil && *cfg.Driver.FailOnInitError && claims == 0 {
		return fmt.Errorf("ending, as failOnInitError wants: %w", err)
	}
	if err != nil {
		klog.FromContext(ctx).Info("No usable NVIDIA driver yet: serving without devices and trying again", "reason", err.Error())
	}
	return nil
}
