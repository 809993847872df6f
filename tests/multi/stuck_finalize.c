/* Stands before libpmix in heddlerun, by LD_PRELOAD: a server that never comes back from its finalize. */
#include <stdio.h>
#include <unistd.h>

int PMIx_server_finalize(void) {
  fputs("PMIx_server_finalize is stuck\n", stderr);
  for (;;) pause();
}
