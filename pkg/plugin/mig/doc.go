// Package mig makes and removes MIG devices: a GPU instance at one placement with the compute instance that fills it.
//
// An instance carries no mark of its maker, and its ids are used again after a deletion. Only records say which instances are ours:
// before an instance is made its placement is seen to be free, and a record says that it is about to be made there. Afterwards it is
// removed only if it is the very one that was made, by its MIG UUID, or, after a crash, at that placement.
//
// No claim owns the MIG mode: the last claim set the mode that it needed, and it changes when the next one needs the other.
package mig
