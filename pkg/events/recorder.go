package events

// Recorder writes Events of one object; *kube.Events is the real one. It does not block.
type Recorder interface {
	Warn(reason, action, note string)
	Normal(reason, action, note string)
}

// ClaimRecorder writes Events of ResourceClaims, which outlive them; *kube.Events is the real one. It does not block.
type ClaimRecorder interface {
	WarnOfClaim(namespace, name, uid, reason, action, note string)
}
