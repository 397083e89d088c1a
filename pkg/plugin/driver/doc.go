// Package driver is the kubelet's end of the path of a claim: it serves the kubelet's plugin sockets, prepares or unprepares each claim of
// a call, and answers with the claim's CDI devices. It logs and measures every claim, and reports the outcome in the claim's status. It
// decides nothing: the transaction prepares, the layout advertises.
package driver
