"""Russian doll search: problems of the last variables alone, each bounds the next."""
