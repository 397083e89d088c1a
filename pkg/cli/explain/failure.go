package explain

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// causeOf is the cause of an error because of which the scheduler tries no other node.
func causeOf(err error) Cause {
	switch text := err.Error(); {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return SearchTooLong
	case strings.Contains(text, "claim constraint would not be satisfied"):
		return Constraint
	case strings.Contains(text, "asks for all devices"):
		return PoolIncomplete
	case strings.Contains(text, "exceeds the claim limit"), strings.Contains(text, "is too large"):
		return Count
	case strings.Contains(text, "could not retrieve device class"):
		return ClassMissing
	case strings.Contains(text, "checking capacity"):
		return Capacity
	default:
		return ExpressionError
	}
}

// failureDetail explains an error because of which the scheduler tries no other node.
func (r *run) failureDetail(ctx context.Context, a *asked, node *clusterview.Node, o *outcome) string {
	switch o.cause {
	case ExpressionError:
		return r.expressionDetail(ctx, a, node, o.fatal)
	case Constraint:
		return "all devices are requested, and the devices of node " + node.Name + " do not satisfy " + constraints(a.claims) +
			": the scheduler tries no other node"
	case Count:
		return fmt.Sprintf("the requests of a claim are for more than %d devices on node %s, the most that a claim can have: the scheduler tries "+
			"no other node", resourceapi.AllocationResultsMaxSize, node.Name)
	case PoolIncomplete:
		return "all devices are requested, and a pool of node " + node.Name + " is incomplete or invalid"
	default:
		return o.fatal.Error()
	}
}

// missingKey matches the error of CEL for an attribute or a capacity that a device does not have.
var missingKey = regexp.MustCompile(`no such key: (\w+)`)

// expressionDetail names the device and the expression that fails on it, and how to guard it.
func (r *run) expressionDetail(ctx context.Context, a *asked, node *clusterview.Node, failure error) string {
	for _, p := range r.reachable(node) {
		l := newLedger(p, node, r.Features)
		for _, place := range l.reachable() {
			d := l.devices[place].device
			for _, alternatives := range a.wishes {
				for _, w := range alternatives {
					if e, err := r.firstError(ctx, w, d); err != nil {
						return r.describe(e, d, node, err)
					}
				}
			}
		}
	}
	return failure.Error()
}

// firstError evaluates as the allocator does.
func (r *run) firstError(ctx context.Context, w *wish, d device) (*expression, error) {
	for _, e := range w.expressions {
		matches, err := r.matcher.evaluate(ctx, &e.part, d)
		if err != nil {
			return e, err
		}
		if !matches {
			break
		}
	}
	return nil, nil
}

func (r *run) describe(e *expression, d device, node *clusterview.Node, err error) string {
	reason, _, _ := strings.Cut(err.Error(), ". consider")
	text := fmt.Sprintf("device %s of node %s: %s of %s fails: %s", d.Name, node.Name, e.short(d.driver), e.of, reason)
	if match := missingKey.FindStringSubmatch(err.Error()); match != nil {
		if guard := r.guard(e, match[1], d); guard != "" {
			text += "; guard it: " + guard
		}
		return text
	}
	for _, name := range e.reads.sortedAttributes() {
		if v, found := attribute(d, name); found && v.VersionValue != nil && !strings.Contains(e.text, "semver(") {
			return text + fmt.Sprintf("; %s is a version: compare it with semver(%q)", baseName(name), *v.VersionValue)
		}
	}
	return text
}

// guard is the expression of an attribute or a capacity that some devices lack.
func (r *run) guard(e *expression, id string, on device) string {
	for _, name := range e.reads.sortedAttributes() {
		if domain, base, _ := strings.Cut(string(name), "/"); base == id {
			if _, found := attribute(on, name); !found {
				return fmt.Sprintf("device.attributes[%q].?%s.orValue(%s)", domain, id, r.zero(name))
			}
		}
	}
	for _, name := range e.reads.sortedCapacities() {
		if domain, base, _ := strings.Cut(string(name), "/"); base == id {
			if _, found := capacityOf(on, name); !found {
				return fmt.Sprintf("device.capacity[%q].?%s.orValue(quantity(\"0\"))", domain, id)
			}
		}
	}
	return ""
}

// zero is a value of the type that an attribute has on other devices.
func (r *run) zero(name resourceapi.QualifiedName) string {
	for _, node := range r.Cluster.Nodes {
		for _, p := range node.Pools {
			for _, slice := range p.Slices() {
				for i := range slice.Spec.Devices {
					if a, found := attribute(device{&slice.Spec.Devices[i], p.Driver}, name); found {
						return zeroOf(a)
					}
				}
			}
		}
	}
	return `""`
}

func zeroOf(a resourceapi.DeviceAttribute) string {
	switch {
	case a.IntValue != nil:
		return "0"
	case a.BoolValue != nil:
		return "false"
	case a.VersionValue != nil:
		return `semver("0.0.0")`
	case a.StringValue != nil:
		return `""`
	default:
		return "[]"
	}
}
