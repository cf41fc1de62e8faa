// Keeps a value in each vector register while it looks at them as often as the argument says, and
// says whether all were there each time: {"ev":"kept","whole":true}.
#include "../lt.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LOAD(n) "movdqu " #n "*16(%[values]), %%xmm" #n "\n"
#define CHECK(n) "movq %%xmm" #n ", %%rax\n cmp " #n "*16(%[values]), %%rax\n jne 2f\n"
#define ALL(each)                                                                                 \
	each(0) each(1) each(2) each(3) each(4) each(5) each(6) each(7) each(8) each(9) each(10)  \
		each(11) each(12) each(13) each(14) each(15)

// Whether they are whole after so many looks at them. Nothing else runs meanwhile.
static int keeps(const uint64_t values[32], uint64_t looks)
{
	asm volatile(ALL(LOAD) "1:\n" ALL(CHECK) "dec %[looks]\n jnz 1b\n 2:\n"
		     : [looks] "+r"(looks)
		     : [values] "r"(values)
		     : "rax", "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
		       "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
	return looks == 0;
}

int main(int argc, char **argv)
{
	uint64_t values[32];
	uint64_t looks = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;

	for (int i = 0; i < 32; i++)
		values[i] = 0x123456789abcdef1u * (i + 1);
	printf("{\"ev\":\"begins\"}\n");
	fflush(stdout);
	printf("{\"ev\":\"kept\",\"whole\":%s}\n", keeps(values, looks) ? "true" : "false");
	return 0;
}
