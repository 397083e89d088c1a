// Package claim plans: it reads a claim's allocation results, the opaque configuration that goes with them and what the node
// has, and makes a Plan, or a Refusal that the user can act on. It is pure: same input, same plan.
package claim
