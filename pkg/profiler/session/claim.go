package session

// Claim is a claim whose processes are profiled, in a node's answer with sessions.
type Claim struct {
	Claim        string `json:"claim"`
	ClaimUID     string `json:"claimUID"`
	Namespace    string `json:"namespace"`
	NamespaceUID string `json:"namespaceUID,omitempty"`
	// Armed is whether its next processes are profiled.
	Armed bool `json:"armed"`
}
