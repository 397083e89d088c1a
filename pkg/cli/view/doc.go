// Package view reads the picture of a cluster from the API server, with the rights of the user, and follows its changes. It writes nothing.
package view
