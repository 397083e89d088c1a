#!/bin/bash
# A script as entrypoints have it: arguments, redirections, a pipe, a trap, programs that fail.
echo "script $0 with $# arguments: $*"
umask
cat
(exit 3)
echo "subshell $?"
{ bash -c 'kill -9 $$'; } 2>/dev/null
echo "killed $?"
seq 3 | tac | tr '\n' ' '
trap 'echo trapped' USR1
kill -USR1 $$
echo "to stderr" >&2
touch /tmp/made && stat -c '%a %U' /tmp/made
exec bash -c 'echo executed; exit 9'
