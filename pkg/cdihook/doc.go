// Package cdihook asks NVIDIA's hook program which hooks it has. Each version of NVIDIA's container toolkit has others, and a program that is
// started for a hook that it does not have fails the container.
package cdihook
