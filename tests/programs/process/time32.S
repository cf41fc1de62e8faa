# A 32-bit program without a library: prints the four bytes of time(2), then exits with 0.
# Built by: as --32, ld -m elf_i386
	.text
	.globl	_start
_start:
	movl	$13, %eax		# time(NULL)
	xorl	%ebx, %ebx
	int	$0x80
	movl	%eax, seconds
	movl	$4, %eax		# write(1, &seconds, 4)
	movl	$1, %ebx
	movl	$seconds, %ecx
	movl	$4, %edx
	int	$0x80
	movl	$1, %eax		# exit(0)
	xorl	%ebx, %ebx
	int	$0x80
	.bss
seconds:
	.long	0
	.section .note.GNU-stack,"",@progbits
