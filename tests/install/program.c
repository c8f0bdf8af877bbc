#include <epl.h>
#include <stdio.h>
int main(void) { return printf("%u\n", (unsigned)epl_version()) > 0 && epl_abi_version() == EPL_ABI_VERSION ? 0 : 1; }
