// Package driver is the kubelet's end of the path of a claim: it serves the kubelet's plugin sockets, has each claim of a call prepared or
// unprepared, and answers with the claim's CDI devices. It logs and measures every claim, and reports the outcome in the claim's status. It
// decides nothing: what is prepared is the transaction's, what is advertised is the layout's.
package driver
