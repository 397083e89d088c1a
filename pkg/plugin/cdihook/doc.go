// Package cdihook asks NVIDIA's hook program which hooks it supports. This depends on the version of NVIDIA's container toolkit, and a
// program that is started for an unsupported hook fails the container.
package cdihook
