# bug: an end whose peer has no SHIFT fails, but its state says that it could still be protected
# caught: invalid array index
# with: -DBIND=2 -DCUTS=1 -DN_B=1
# file: shift.pml
s/ev = E_app_error \/\* the application gets.*/ev = E_none; d_step { shut() }/
