# Both do all the set-up themselves; ./run is the implementation, for machines without make.
.PHONY: run test

run:
	@./run

test:
	@./run test -- $(ARGS)
