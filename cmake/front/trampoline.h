// Assembler: the jump to a stock function through its slot. All argument registers are kept, as are
// %al and the vector registers (for variadic functions). The slot's index is passed in a scratch
// register, so that an empty slot can say which function it stands for. stock.cc fills the slots.
#if defined(__x86_64__)

.macro SHIFT_TRAMPOLINE name, index
  .text
  .balign 16
  .globl \name
  .type \name, %function
\name:
  .cfi_startproc
  endbr64
  movl $\index, %r11d
  jmp *shift_front_slots + 8 * \index(%rip)
  .cfi_endproc
  .size \name, . - \name
.endm

// The function called ends in abort(), so the stack may be realigned without keeping the old
// pointer.
.macro SHIFT_TRAMPOLINE_MISSING
  endbr64
  movl %r11d, %edi
  andq $-16, %rsp
  call shift_front_missing
.endm

#elif defined(__aarch64__)

// A linker's own veneers may use only x16 and x17 at a call. `hint #34` is `bti c`.
.macro SHIFT_TRAMPOLINE name, index
  .text
  .balign 16
  .globl \name
  .type \name, %function
\name:
  .cfi_startproc
  hint #34
  adrp x16, shift_front_slots + 8 * \index
  ldr x17, [x16, :lo12:shift_front_slots + 8 * \index]
  mov w16, #\index
  br x17
  .cfi_endproc
  .size \name, . - \name
.endm

.macro SHIFT_TRAMPOLINE_MISSING
  hint #34
  mov w0, w16
  bl shift_front_missing
.endm

#else
#error "the front library has trampolines for x86-64 and aarch64 only"
#endif

// Each slot leads to shift_front_missing(index) until it is filled.
.macro SHIFT_TRAMPOLINE_SLOTS count
  .text
  .balign 16
  .hidden shift_front_missing
  .type shift_front_empty_slot, %function
shift_front_empty_slot:
  .cfi_startproc
  SHIFT_TRAMPOLINE_MISSING
  .cfi_endproc
  .size shift_front_empty_slot, . - shift_front_empty_slot
  .section .data.rel, "aw", %progbits
  .balign 8
  .globl shift_front_slots
  .hidden shift_front_slots
  .type shift_front_slots, %object
shift_front_slots:
  .rept \count
  .quad shift_front_empty_slot
  .endr
  .size shift_front_slots, . - shift_front_slots
.endm
