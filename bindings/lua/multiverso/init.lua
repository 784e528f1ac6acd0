--- For programs written for Multiverso: the same functions under its name.

return require 'unisono'
