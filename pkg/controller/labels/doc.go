// Package labels keeps labels on the Nodes of GPUs, spelt as gpu-feature-discovery spells them, from the ResourceSlices that the plugins of
// these nodes publish.
//
// Plan is pure: it computes the labels of a node from the facts of its ResourceSlices. Reconciler writes the differences by server-side apply
// with its own field manager, without force: a label of another manager stays. Removal removes the labels when they are switched off.
package labels
