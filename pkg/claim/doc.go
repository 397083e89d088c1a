// Package claim plans: it reads a claim's allocation results, their opaque configuration and the state of the node, and makes a Plan, or
// a Refusal that the user can act on. It is pure: same input, same plan.
package claim
